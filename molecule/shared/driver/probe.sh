# What a host is now, one `word=value` a line. Asks the system only, nothing that the collection wrote for itself.
export LC_ALL=C
if grep -q rocky /etc/os-release; then
    parts=$(rpm -qa --qf '%{NAME}=%{EPOCHNUM}:%{VERSION}-%{RELEASE}\n' | grep -E 'nvidia|nvlsm' | grep -v toolkit | sort)
    holds=$(grep -v '^#' /etc/dnf/plugins/versionlock.list 2>/dev/null)
else
    parts=$(dpkg-query -W -f '${db:Status-Abbrev} ${Package}=${Version}\n' | sed -n 's/^.i  *//p' |
        grep -E 'nvidia|^libcuda1|^nvlsm' | grep -v toolkit | sort)
    holds=$(apt-mark showhold | sort)
fi
echo "parts=$(echo $parts)"
echo "holds=$(echo $holds)"
echo "versions=$(echo "$parts" | grep -v nvlsm | sed 's/^[^=]*=//' | sort -u | xargs)"
echo "kernel_package=$(echo "$parts" | grep -E 'dkms' | sed 's/=.*//')"
echo "loaded=$(sed -nE 's/.* ([0-9]{3}\.[0-9.]+) .*/\1/p' /proc/driver/nvidia/version 2>/dev/null)"
echo "fabric=$(systemctl is-active nvidia-fabricmanager)"
echo "initramfs=$(cat /var/lib/fakegpu/initramfs-runs 2>/dev/null)"
places=$(ls -d /etc/apt /etc/modprobe.d /etc/yum.repos.d /etc/pki /etc/dnf /var/lib/gpufleet-driver 2>/dev/null)
files=$(grep -rls 'gpufleet\|nvidia' $places; find $places -name '*gpufleet*')
echo "files=$(echo $files)"
echo "smi=$(dpkg-query -W -f '${Version} ' nvidia-smi libcuda1 libnvidia-ml1 2>/dev/null | sed 's/ $//')"
echo "held=$(apt-mark showhold 2>/dev/null | grep -qx libnvidia-ml1 && echo yes)"
echo "smi_status=$(nvidia-smi >/dev/null 2>&1; echo $?)"
echo "dkms=$(dkms status 2>/dev/null | sed -nE 's/^nvidia.*: ([a-z]+).*/\1/p' | sort -u | xargs)"
echo "server=$(systemctl is-active sglang-main)"
echo "leftovers=$(dpkg-query -W -f '${db:Status-Abbrev} ${Package}\n' | sed -n 's/^.c  *//p' | grep -E 'nvidia|^libcuda1|^nvlsm' | xargs)"
echo "rpm_key=$(rpm -q gpg-pubkey >/dev/null 2>&1 && echo yes)"
echo "along_version=$(cat /usr/share/fakegpu/along 2>/dev/null)"
echo "along=$(ls /usr/share/fakegpu/along 2>/dev/null)"
echo "lease=$(ls /run/sglang 2>/dev/null | grep lease | xargs)"
echo "away=$(ls /var/lib/sglang/*/away.json 2>/dev/null | xargs)"
echo "mig=$(cat /var/lib/fakegpu/mig/* 2>/dev/null | xargs)"
echo "fence_first=$(head -n 1 /var/lib/fakegpu/fence 2>/dev/null)"
echo "fence_last=$(tail -n 1 /var/lib/fakegpu/fence 2>/dev/null)"
