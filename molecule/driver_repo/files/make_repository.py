"""Makes a signed repository of empty packages with the names and dependencies of NVIDIA's drivers.

    make_repository.py apt|rpm FOLDER [--without VERSION] [--key NAME]

The dependencies are as loose as those of real packages: nothing but a pin keeps parts together. Each package brings a
file with its version, from which fakegpu.py computes what a host with it does.
"""

from __future__ import annotations

import argparse
import gzip
import hashlib
import json
import os
import pathlib
import platform
import shutil
import subprocess

VERSIONS = ("570.195.03", "580.95.05", "580.105.08")
PLUGINS = "/usr/lib/python3/dist-packages/dnf-plugins"  # where Debian's dnf looks
ALONG = "update-glx"  # comes with the driver and is no part of it
# Kernels that the repository has headers for: of Debian, and of RHEL as its packages name them.
KERNELS = (platform.release(), "99.0.0-1-amd64")
RHEL_KERNELS = ("5.14.0-570.12.1.el9_6", "5.14.0-570.17.1.el9_6")
SMI = '#!/bin/sh\nexec python3 /opt/fakegpu/fakegpu.py smi "$@"\n'
UNIT = """[Unit]
Description={0}
{1}
[Service]
ExecStart=/bin/sleep infinity
[Install]
WantedBy=multi-user.target
"""


def file_of(what, version):
    return {f"/usr/share/fakegpu/{what}": version + "\n"}


def modules(version, rpm):
    """Return files as if DKMS had built the module: no host is booted into a kernel that has none.

    For the kernel that runs, and on hosts that play RHEL also for the kernel that the role is told there.
    """
    releases = [platform.release(), *(f"{one}.{platform.machine()}" for one in RHEL_KERNELS if rpm)]
    return {f"/lib/modules/{one}/updates/dkms/nvidia.ko": version + "\n" for one in releases}


def packages_of(version, rpm):
    """Return name -> (fields, files) of one version of the driver."""
    loose = f" >= {version}" if rpm else f" (>= {version})"
    branch = version.partition(".")[0]
    fabric = (
        "nvidia-fabricmanager"
        if int(branch) >= 580
        else ("nvidia-fabric-manager" if rpm else f"nvidia-fabricmanager-{branch}")
    )
    library = "libnvidia-ml" if rpm else "libnvidia-ml1"
    cuda = "nvidia-driver-cuda-libs" if rpm else "libcuda1"
    open_name, closed_name = (
        ("kmod-nvidia-open-dkms", "kmod-nvidia-latest-dkms")
        if rpm
        else ("nvidia-kernel-open-dkms", "nvidia-kernel-dkms")
    )
    found = {
        "nvidia-driver-cuda": ({"Depends": [library + loose, cuda + loose, ALONG]}, {"/usr/bin/nvidia-smi": SMI}),
        library: ({}, file_of("user-space", version)),
        cuda: ({}, file_of("libcuda", version)),
        open_name: ({"Conflicts": [closed_name]}, {**file_of("open", version), **modules(version, rpm)}),
        closed_name: ({"Conflicts": [open_name]}, {**file_of("closed", version), **modules(version, rpm)}),
        "nvidia-persistenced": (
            {},
            {"/usr/lib/systemd/system/nvidia-persistenced.service": UNIT.format("persistence", "")},
        ),
        fabric: (
            {},
            {
                **file_of("fabric-manager", version),
                "/usr/lib/systemd/system/nvidia-fabricmanager.service": UNIT.format("fabric manager", ""),
            },
        ),
    }
    if rpm:
        found["nvidia-kmod-common"] = ({}, {})
    else:
        found[fabric][1][f"/etc/{fabric}.cfg"] = version + "\n"  # a conffile: what a removal leaves
    return found


def beside(rpm):
    """Return (name, version, files) of packages that are no part of a driver, or have a version of their own."""
    found = [
        ("nvlsm", "2025.06.11-1", {"/usr/share/fakegpu/nvlsm": "2025.06.11\n"}),
        (ALONG, "1.2.2-1", {"/usr/share/fakegpu/along": "1.2.2\n"}),
        ("nvidia-container-toolkit", "1.18.1-1", {"/usr/share/fakegpu/toolkit": "1.18.1\n"}),
    ]
    if rpm:
        plugin = (pathlib.Path(__file__).parent / "versionlock.py").read_text()
        files = {"/etc/dnf/plugins/versionlock.conf": "[main]\nenabled = 1\n", f"{PLUGINS}/versionlock.py": plugin}
        found.append(("python3-dnf-plugin-versionlock", "4.3.0-1", files))
    else:
        found += [("linux-headers-" + one, "1.0-1", headers(one)) for one in KERNELS]
        # A newer one, which a pin of the host keeps away.
        found.append((ALONG, "9.9-1", {"/usr/share/fakegpu/along": "9.9\n"}))
    return found


def headers(release):
    return {f"/lib/modules/{release}/build/Makefile": "#\n"}


def lay_out(folder, files):
    for path, text in files.items():
        place = folder / path.lstrip("/")
        place.parent.mkdir(parents=True, exist_ok=True)
        place.write_text(text)
        place.chmod(0o755 if "/bin/" in path else 0o644)


def make_deb(target, work, name, version, fields, files):
    tree = work / "tree"
    shutil.rmtree(tree, ignore_errors=True)
    (tree / "DEBIAN").mkdir(parents=True)
    lay_out(tree, files)
    control = {
        "Package": name,
        "Version": version,
        "Architecture": "all",
        "Maintainer": "nobody <nobody@localhost>",
        "Description": "empty",
        **{key: ", ".join(value) for key, value in fields.items()},
    }
    text = "".join(f"{key}: {value}\n" for key, value in control.items())
    (tree / "DEBIAN" / "control").write_text(text)
    (tree / "DEBIAN" / "conffiles").write_text("".join(f"{one}\n" for one in files if one.startswith("/etc/")))
    path = target / f"{name}_{version}_all.deb"
    subprocess.run(
        ["dpkg-deb", "--root-owner-group", "-Znone", "--build", str(tree), str(path)],
        check=True,
        stdout=subprocess.DEVNULL,
    )
    data = path.read_bytes()
    return text + f"Filename: ./{path.name}\nSize: {len(data)}\nSHA256: {hashlib.sha256(data).hexdigest()}\n\n"


def make_deb_repository(folder, work, without):
    """Return the index."""
    index = ""
    for version in (one for one in VERSIONS if one not in without):
        for name, (fields, files) in packages_of(version, False).items():
            index += make_deb(folder, work, name, version + "-1", fields, files)
    for name, version, files in beside(False):
        index += make_deb(folder, work, name, version, {}, files)
    return index


def subpackage(tree, name, fields, files, version=None):
    """Return the lines of one package in a spec, and lay its files out in a tree of its own.

    ``version``: its own, also with a release; then it is of this machine's architecture and without an epoch.
    """
    lay_out(tree, files)
    lines = [f"%package -n {name}", "Summary: empty", "AutoReqProv: no"]
    number, _dash, release = (version or "").partition("-")
    lines += [f"Version: {number}"] if number else []
    lines += [f"Release: {release}", "Epoch: 0"] if release else ["BuildArch: noarch"]
    lines += [f"Requires: {one}" for one in fields.get("Depends", [])]
    lines += [f"Conflicts: {one}" for one in fields.get("Conflicts", [])]
    lines += [f"Provides: {one}" for one in fields.get("Provides", [])]
    return [*lines, f"%description -n {name}", "empty", f"%files -n {name}", *files]


def make_rpms(target, work, version, packages):
    """Make all packages of one version with one spec.

    ``packages``: (name, version of its own or None, fields, files).
    """
    tree = work / "tree"
    shutil.rmtree(tree, ignore_errors=True)
    tree.mkdir()
    lines = ["Name: all", "Epoch: 3", f"Version: {version}", "Release: 1.el9", "Summary: empty", "License: none"]
    lines += ["%description", "empty"]
    for name, own, fields, files in packages:
        lines += subpackage(tree, name, fields, files, own)
    lines += ["%install", f"mkdir -p %{{buildroot}} && cp -a {tree}/. %{{buildroot}}/"]
    spec = work / "all.spec"
    spec.write_text("\n".join(lines) + "\n")
    command = ["rpmbuild", "-bb", "--quiet", "--define", f"_topdir {work}/rpm", "--define", f"_rpmdir {target}"]
    command += [
        "--define",
        "__spec_install_post %{nil}",
        "--define",
        "_build_name_fmt %%{NAME}-%%{VERSION}-%%{RELEASE}.%%{ARCH}.rpm",
        str(spec),
    ]
    subprocess.run(command, check=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)


def module_streams(names):
    """Return the streams of NVIDIA's repository for RHEL 9: a branch each, and the newest as the default.

    Without module_hotfixes dnf shows the packages of the default stream only. ``names``: version -> names.
    """
    texts = []
    for stream, version in (("latest-dkms", VERSIONS[-1]), ("580-dkms", VERSIONS[1]), ("570-dkms", VERSIONS[0])):
        rpms = [f"{name}-3:{version}-1.el9.noarch" for name in names.get(version, [])]
        data = {"name": "nvidia-driver", "stream": stream, "version": 20251101000000, "context": "abcd0001"}
        data.update(arch="x86_64", summary="driver", description="driver", license={"module": ["none"]})
        data.update(dependencies=[{"requires": {}}], artifacts={"rpms": rpms})
        texts.append({"document": "modulemd", "version": 2, "data": data})
    default = {"module": "nvidia-driver", "stream": "latest-dkms"}
    texts.append({"document": "modulemd-defaults", "version": 1, "data": default})
    return "".join(f"---\n{json.dumps(text)}\n...\n" for text in texts)  # JSON is YAML


def make_rpm_repository(folder, work, without):
    names = {}
    for version in (one for one in VERSIONS if one not in without):
        packages = packages_of(version, True)
        names[version] = list(packages)
        make_rpms(folder, work, version, [(name, None, *rest) for name, rest in packages.items()])
    make_rpms(folder, work, "1.0", [(name, one.partition("-")[0], {}, files) for name, one, files in beside(True)])
    for one in RHEL_KERNELS:
        # As the real ones: one name for every kernel, several of them installed side by side.
        fields = {"Provides": ["installonlypkg(kernel)"]}
        release = f"{one}.{platform.machine()}"
        make_rpms(folder, work, "1.0", [("kernel-devel", one, fields, headers(release))])
    (work / "modules.yaml").write_text(module_streams(names))


def gpg(*arguments, text=None):
    return subprocess.run(
        ["gpg", "--batch", "--yes", *arguments],
        input=text,
        check=True,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
    ).stdout


def key(name, folder):
    """Make a key when there is none of this name; write it and its fingerprint beside the repository."""
    listed = subprocess.run(
        ["gpg", "--batch", "--list-keys", "--with-colons", name],
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        check=False,
    ).stdout.decode()
    if "fpr" not in listed:
        gpg("--passphrase", "", "--quick-generate-key", name, "rsa2048", "sign", "never")
        listed = gpg("--list-keys", "--with-colons", name).decode()
    fingerprint = next(line.split(":")[9] for line in listed.splitlines() if line.startswith("fpr"))
    (folder.parent / "key.asc").write_bytes(gpg("--armor", "--export", fingerprint))
    (folder.parent / "key.asc.fingerprint").write_text(fingerprint)
    return fingerprint


def sign_index(folder, index, fingerprint):
    data = index.encode()
    (folder / "Packages").write_bytes(data)
    (folder / "Packages.gz").write_bytes(gzip.compress(data))
    sums = "".join(
        f" {hashlib.sha256((folder / name).read_bytes()).hexdigest()} {(folder / name).stat().st_size} {name}\n"
        for name in ("Packages", "Packages.gz")
    )
    date = (
        subprocess.run(["date", "-Ru"], stdout=subprocess.PIPE, check=True)
        .stdout.decode()
        .strip()
        .replace("+0000", "UTC")
    )
    release = f"Origin: NVIDIA\nLabel: NVIDIA CUDA\nArchitectures: all amd64\nDate: {date}\nSHA256:\n{sums}"
    (folder / "InRelease").write_bytes(gpg("--local-user", fingerprint, "--clearsign", text=release.encode()))


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("kind", choices=["apt", "rpm"])
    parser.add_argument("folder", type=pathlib.Path)
    parser.add_argument("--without", action="append", default=[])
    parser.add_argument("--key", default="drivers@localhost")
    options = parser.parse_args()
    rpm, folder = options.kind == "rpm", options.folder
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    work = pathlib.Path("/tmp/make-repository")
    work.mkdir(exist_ok=True)
    fingerprint = key(options.key, folder)
    if rpm:
        make_rpm_repository(folder, work, options.without)
        sign = ["rpmsign", "--addsign", "--define", f"_gpg_name {fingerprint}", "--define", "__gpg /usr/bin/gpg"]
        sign += [str(path) for path in folder.rglob("*.rpm")]
        for command in (
            sign,
            ["createrepo_c", "-q", str(folder)],
            ["modifyrepo_c", "--mdtype=modules", str(work / "modules.yaml"), str(folder / "repodata")],
        ):
            subprocess.run(command, check=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    else:
        sign_index(folder, make_deb_repository(folder, work, options.without), fingerprint)
    os.sync()


if __name__ == "__main__":
    main()
