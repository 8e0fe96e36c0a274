# Makes a test host one with played boards and the repository. host.sh apt|rpm BOARDS
set -eu
export DEBIAN_FRONTEND=noninteractive
mkdir -p /etc/modprobe.d /etc/fakegpu /usr/share/fakegpu
printf '%s' "$2" >/etc/fakegpu/boards.json
apt-get -qq update
if [ "$1" = rpm ]; then
    apt-get -qq -y --no-install-recommends install gnupg rpm dnf createrepo-c >/dev/null
else
    apt-get -qq -y --no-install-recommends install gnupg >/dev/null
fi
for name in modprobe update-initramfs dracut; do
    printf '#!/bin/sh\nexec python3 /opt/fakegpu/fakegpu.py %s "$@"\n' "$(echo $name | sed s/dracut/update-initramfs/)" >"/usr/sbin/$name"
    chmod 755 "/usr/sbin/$name"
done
[ "$1" != rpm ] || mv /usr/sbin/dracut /usr/bin/dracut
cat >/etc/systemd/system/fakegpu.service <<'UNIT'
[Unit]
Description=boards
Before=nvidia-persistenced.service nvidia-fabricmanager.service
[Service]
Type=oneshot
RemainAfterExit=yes
ExecStart=/usr/bin/python3 /opt/fakegpu/fakegpu.py boot
[Install]
WantedBy=multi-user.target
UNIT
systemctl daemon-reload
systemctl enable -q fakegpu
python3 /opt/fakegpu/make_repository.py "$1" /srv/repository
if [ "$1" = rpm ]; then
    # A host that says so: everything that asks os-release takes the other path.
    rm /etc/os-release
    printf 'NAME="Rocky Linux"\nID="rocky"\nID_LIKE="rhel centos fedora"\nVERSION_ID="9.6"\nPLATFORM_ID="platform:el9"\n' >/etc/os-release
    mkdir -p /etc/dnf/vars /etc/dnf/plugins /etc/yum.repos.d /etc/pki/rpm-gpg /var/lib/rpm
    echo 9 >/etc/dnf/vars/releasever
fi
systemctl start fakegpu
