"""Makes a signed repository of empty packages with the names and dependencies of NVIDIA's drivers.

    make_repository.py apt|rpm FOLDER [--without VERSION] [--key NAME]

The dependencies are as loose as those of real packages: nothing but a pin keeps parts together. Each package brings a
file with its version, from which fakegpu.py computes what a host with it does.
"""

from __future__ import annotations

import argparse
import gzip
import hashlib
import os
import pathlib
import platform
import shutil
import subprocess

VERSIONS = ("570.195.03", "580.95.05", "580.105.08")
KERNEL = platform.release()
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
        "nvidia-driver-cuda": ({"Depends": [library + loose, cuda + loose]}, {"/usr/bin/nvidia-smi": SMI}),
        library: ({}, file_of("user-space", version)),
        cuda: ({}, file_of("libcuda", version)),
        open_name: ({"Conflicts": [closed_name]}, file_of("open", version)),
        closed_name: ({"Conflicts": [open_name]}, file_of("closed", version)),
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
    return found


def beside(rpm):
    """Return (name, version, files) of packages that are no part of a driver, or have a version of their own."""
    headers = ("kernel-devel-" if rpm else "linux-headers-") + KERNEL
    return [
        ("nvlsm", "2025.06.11-1", {"/usr/share/fakegpu/nvlsm": "2025.06.11\n"}),
        (headers, "1.0-1", {f"/lib/modules/{KERNEL}/build/Makefile": "#\n"}),
        ("nvidia-container-toolkit", "1.18.1-1", {"/usr/share/fakegpu/toolkit": "1.18.1\n"}),
    ]


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
    path = target / f"{name}_{version}_all.deb"
    subprocess.run(
        ["dpkg-deb", "--root-owner-group", "-Znone", "--build", str(tree), str(path)],
        check=True,
        stdout=subprocess.DEVNULL,
    )
    data = path.read_bytes()
    return text + f"Filename: ./{path.name}\nSize: {len(data)}\nSHA256: {hashlib.sha256(data).hexdigest()}\n\n"


def make_rpm(target, work, name, version, fields, files):
    tree = work / "tree"
    shutil.rmtree(tree, ignore_errors=True)
    lay_out(tree, files)
    upstream, release = version.split("-")
    lines = [
        f"Name: {name}",
        "Epoch: 3",
        f"Version: {upstream}",
        f"Release: {release}.el9",
        "Summary: empty",
        "License: none",
        "BuildArch: noarch",
        "AutoReqProv: no",
    ]
    lines += [f"Requires: {one}" for one in fields.get("Depends", [])]
    lines += [f"Conflicts: {one}" for one in fields.get("Conflicts", [])]
    lines += [
        "%description",
        "empty",
        "%install",
        f"mkdir -p %{{buildroot}} && cp -a {tree}/. %{{buildroot}}/ || true",
        "%files",
    ]
    spec = work / "one.spec"
    spec.write_text("\n".join(lines + list(files)) + "\n")
    subprocess.run(
        ["rpmbuild", "-bb", "--quiet", "--define", f"_topdir {work}/rpm", "--define", f"_rpmdir {target}", str(spec)],
        check=True,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    return ""


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


def sign(folder, index, fingerprint):
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
    make = make_rpm if rpm else make_deb
    index = ""
    for version in VERSIONS:
        if version in options.without:
            continue
        for name, (fields, files) in packages_of(version, rpm).items():
            index += make(folder, work, name, version + "-1", fields, files)
    for name, version, files in beside(rpm):
        index += make(folder, work, name, version, {}, files)
    fingerprint = key(options.key, folder)
    if rpm:
        for path in folder.rglob("*.rpm"):
            subprocess.run(
                [
                    "rpmsign",
                    "--addsign",
                    "--define",
                    f"_gpg_name {fingerprint}",
                    "--define",
                    "__gpg /usr/bin/gpg",
                    str(path),
                ],
                check=True,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
            )
        subprocess.run(["createrepo_c", "-q", str(folder)], check=True)
    else:
        sign(folder, index, fingerprint)
    os.sync()


if __name__ == "__main__":
    main()
