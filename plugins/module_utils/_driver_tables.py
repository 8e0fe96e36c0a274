# Copyright (c) 2026, the gpufleet.sglang authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Room: NVIDIA drivers. Tables: branches, generations of boards, repositories, names of packages, with sources.

Private to the gpufleet.sglang collection; may change at any time.
"""

from __future__ import annotations

from dataclasses import dataclass

GUIDE = "NVIDIA driver installation guide"
PCI_IDS = "pci.ids"

# Oldest first: the order counts.
# "older" is what no driver of today serves.
GENERATIONS = (
    "older", "kepler", "maxwell", "pascal", "volta", "turing", "ampere", "hopper", "ada", "blackwell", "newer",
)


@dataclass(frozen=True)
class Range:
    """PCI device ids, both ends included, of one generation of boards."""

    first: int
    last: int
    generation: str
    source: str


RANGES = (
    Range(0x0001, 0x0FBF, "older", PCI_IDS + ": up to GF108, GF106, GF104, GF100"),
    Range(0x0FC0, 0x103F, "kepler", PCI_IDS + ": GK107, GK110"),
    Range(0x1040, 0x117F, "older", PCI_IDS + ": GF119, GF110, GF117"),
    Range(0x1180, 0x11FF, "kepler", PCI_IDS + ": GK104, GK106"),
    Range(0x1200, 0x127F, "older", PCI_IDS + ": GF114, GF116"),
    Range(0x1280, 0x12BF, "kepler", PCI_IDS + ": GK208"),
    Range(0x1340, 0x143F, "maxwell", PCI_IDS + ": GM108, GM107, GM204, GM206"),
    Range(0x15F0, 0x15FF, "pascal", PCI_IDS + ": GP100"),
    Range(0x1617, 0x1619, "maxwell", PCI_IDS + ": GM204 mobile"),
    Range(0x179C, 0x17FF, "maxwell", PCI_IDS + ": GM107, GM200"),
    Range(0x1B00, 0x1D7F, "pascal", PCI_IDS + ": GP102, GP104, GP106, GP107, GP108"),
    Range(0x1D80, 0x1DFF, "volta", PCI_IDS + ": GV100"),
    Range(0x1E00, 0x1FFF, "turing", PCI_IDS + ": TU102, TU104, TU106, TU117"),
    Range(0x2080, 0x20FF, "ampere", PCI_IDS + ": GA100"),
    Range(0x2180, 0x21FF, "turing", PCI_IDS + ": TU116"),
    Range(0x2200, 0x22FF, "ampere", PCI_IDS + ": GA102"),
    Range(0x2300, 0x237F, "hopper", PCI_IDS + ": GH100"),
    Range(0x2400, 0x25FF, "ampere", PCI_IDS + ": GA103, GA104, GA106, GA107"),
    Range(0x2600, 0x28FF, "ada", PCI_IDS + ": AD102, AD103, AD104, AD106, AD107"),
    Range(0x2900, 0x2FFF, "blackwell", PCI_IDS + ": GB100, GB202, GB203, GB205, GB206, GB207, GB20B"),
    Range(0x3180, 0x31FF, "blackwell", PCI_IDS + ": GB110"),
)
# Beyond the table: later than what was known when it was written.
NEWER_FROM = 0x3000

# Boards of a Blackwell baseboard with NVSwitch: its switches are no NVIDIA devices on the PCI bus, and need NVLSM.
BLACKWELL_BASEBOARD = {0x2901: "B200", 0x3182: "B300 SXM6"}  # pci.ids; Fabric Manager User Guide: NVLSM

# Generations whose boards tell NVML the state of their fabric; the others print N/A, and their fabric manager counts.
FABRIC_STATE = ("hopper", "blackwell", "newer")  # NVML API reference, nvmlDeviceGetGpuFabricInfo: Hopper or newer


@dataclass(frozen=True)
class Flavour:
    """Which kernel modules a generation can use. ``open`` and ``proprietary``: whether the flavour knows the board."""

    generation: str
    open: bool
    proprietary: bool
    source: str


FLAVOURS = (
    Flavour("older", False, False, "NVIDIA, legacy GPUs: Fermi and before end with the driver 390"),
    Flavour("kepler", False, True, GUIDE + ": open modules need GSP, Turing and later"),
    Flavour("maxwell", False, True, GUIDE + ": Maxwell, Pascal, Volta are not compatible with the open modules"),
    Flavour("pascal", False, True, GUIDE + ": as Maxwell"),
    Flavour("volta", False, True, GUIDE + ": as Maxwell"),
    Flavour("turing", True, True, GUIDE + ": open recommended"),
    Flavour("ampere", True, True, GUIDE + ": open recommended"),
    Flavour("hopper", True, True, GUIDE + ": open recommended"),
    Flavour("ada", True, True, GUIDE + ": open recommended"),
    Flavour("blackwell", True, False, GUIDE + ": open only; github.com/NVIDIA/open-gpu-kernel-modules#872"),
    Flavour("newer", True, False, GUIDE + ": open only from Blackwell on"),
)


@dataclass(frozen=True)
class Branch:
    """A driver branch. ``cuda``: what it serves by itself, None where not known; generations: oldest and newest."""

    number: int
    kind: str
    cuda: str | None
    oldest: str
    newest: str
    source: str


_CUDA = "CUDA toolkit release notes, driver versions"
BRANCHES = (
    Branch(535, "long-term", "12.2", "maxwell", "ada", _CUDA),
    Branch(550, "production", "12.4", "maxwell", "ada", _CUDA),
    Branch(560, "new feature", "12.6", "maxwell", "ada", _CUDA),
    Branch(565, "new feature", "12.7", "maxwell", "ada", _CUDA),
    Branch(570, "production", "12.8", "maxwell", "blackwell", _CUDA),
    Branch(575, "new feature", "12.9", "maxwell", "blackwell", _CUDA),
    Branch(580, "long-term", "13.0", "maxwell", "blackwell", _CUDA + "; last one for Maxwell, Pascal, Volta"),
    Branch(590, "new feature", "13.1", "turing", "newer", _CUDA),
    Branch(595, "production", "13.2", "turing", "newer", _CUDA),
    Branch(610, "new feature", None, "turing", "newer", GUIDE + ": nvidia-driver-pinning-610"),
    Branch(615, "new feature", None, "turing", "newer", "packages.ubuntu.com: nvidia-graphics-drivers-615"),
)
NEWEST_KNOWN = BRANCHES[-1].number


@dataclass(frozen=True)
class Repository:
    """NVIDIA's network repository for one distribution. ``fingerprint``: of the key that signs it."""

    distribution: str
    major: str
    folder: str
    key: str
    fingerprint: str
    source: str


BASE_URL = "https://developer.download.nvidia.com/compute/cuda/repos"
# NVIDIA/cuda-repo-management, SIGNATURES.md, has the whole fingerprints of these two; the driver installation guide
# ("GPG keys used to sign the packages") has their ends, after which the files are called.
_DEB_KEY = ("3bf863cc.pub", "EB693B3035CD5710E231E123A4B469963BF863CC")
_RPM_KEY = ("D42D0685.pub", "610C7B14E068A878070DA4E99CD0A493D42D0685")
_PUBLISHED = "NVIDIA/cuda-repo-management: SIGNATURES.md"
# NVIDIA names the others by their ends (NVIDIA/cuda-repo-management#34 and #39); the rest is what several independent
# public provisionings pin.
_NAMED = "NVIDIA CUDA repositories: name of the key's file; whole fingerprint as pinned in public provisioning code"
REPOSITORIES = (
    Repository("debian", "12", "debian12", *_DEB_KEY, _PUBLISHED),
    Repository("debian", "13", "debian13", "8793F200.pub", "02182E60104FCDC26EAE1B8597A5D4CB8793F200", _NAMED),
    Repository("ubuntu", "22.04", "ubuntu2204", *_DEB_KEY, _PUBLISHED),
    Repository("ubuntu", "24.04", "ubuntu2404", *_DEB_KEY, _PUBLISHED),
    Repository("ubuntu", "26.04", "ubuntu2604", "60DF8A40.pub", "14BAFBC7562AD710CA04E69905FBB6DA60DF8A40", _NAMED),
    Repository("rhel", "9", "rhel9", *_RPM_KEY, _PUBLISHED),
)
# Distributions that are the same as another one here: ID of os-release -> ours.
SAME_AS = {"rhel": "rhel", "rocky": "rhel", "almalinux": "rhel", "centos": "rhel", "ol": "rhel"}
# Folder names of architectures in the repositories.
ARCHITECTURES = {"x86_64": "x86_64", "aarch64": "sbsa"}


@dataclass(frozen=True)
class Layout:
    """Names of the packages of a driver. ``{branch}`` and ``{kernel}`` are filled in.

    ``source``: nvidia (also a local copy of it) or distribution. ``user``: what a host without a display needs.
    ``own``: packages whose version is not that of the driver. Empty: does not exist there.
    """

    source: str
    distribution: str
    first_branch: int
    last_branch: int
    open_dkms: str
    proprietary_dkms: str
    open_prebuilt: str
    proprietary_prebuilt: str
    user: tuple
    persistence: str
    fabric: str
    nvlsm: str
    own: tuple
    origin: str


_NEVER = 9999
# Distributions have these from sources of their own, at versions of their own (packages.ubuntu.com: nvidia-settings
# 510.47.03 beside every branch; packages.debian.org).
_TOOLS = ("nvidia-settings", "nvidia-modprobe", "nvidia-xconfig")
_UBUNTU = ("libnvidia-compute{0}", "nvidia-utils{0}", "libnvidia-cfg1{0}")


def _user(suffix):
    return tuple(name.format(suffix) for name in _UBUNTU)


LAYOUTS = (
    Layout("nvidia", "debian", 560, 579, "nvidia-kernel-open-dkms", "nvidia-kernel-dkms", "", "",
           ("nvidia-driver-cuda", "libcuda1"), "nvidia-persistenced", "nvidia-fabricmanager-{branch}", "nvlsm",
           ("nvlsm",), GUIDE + ": compute-only, Debian"),
    Layout("nvidia", "debian", 580, _NEVER, "nvidia-kernel-open-dkms", "nvidia-kernel-dkms", "", "",
           ("nvidia-driver-cuda", "libcuda1"), "nvidia-persistenced", "nvidia-fabricmanager", "nvlsm",
           ("nvlsm",), GUIDE + ": compute-only, Debian"),
    Layout("nvidia", "ubuntu", 535, 579, "nvidia-dkms-{branch}-open", "nvidia-dkms-{branch}", "", "",
           _user("-{branch}"), "nvidia-compute-utils-{branch}", "nvidia-fabricmanager-{branch}", "nvlsm",
           ("nvlsm",), GUIDE + ": compute-only, Ubuntu before 590"),
    Layout("nvidia", "ubuntu", 580, 589, "nvidia-dkms-{branch}-open", "nvidia-dkms-{branch}", "", "",
           _user("-{branch}"), "nvidia-compute-utils-{branch}", "nvidia-fabricmanager", "nvlsm",
           ("nvlsm",), GUIDE + ": compute-only, Ubuntu before 590"),
    Layout("nvidia", "ubuntu", 590, _NEVER, "nvidia-dkms-open", "nvidia-dkms", "", "",
           _user(""), "nvidia-compute-utils", "nvidia-fabricmanager", "nvlsm",
           ("nvlsm",), GUIDE + ": Ubuntu package renames from 590 on"),
    Layout("nvidia", "rhel", 560, 579, "kmod-nvidia-open-dkms", "kmod-nvidia-latest-dkms", "", "",
           ("nvidia-driver-cuda", "nvidia-driver-cuda-libs", "libnvidia-ml", "nvidia-kmod-common"),
           "nvidia-persistenced", "nvidia-fabric-manager", "nvlsm", ("nvlsm",),
           "Amazon Linux 2023 release notes, NVIDIA packages 570"),
    Layout("nvidia", "rhel", 580, _NEVER, "kmod-nvidia-open-dkms", "kmod-nvidia-latest-dkms", "", "",
           ("nvidia-driver-cuda", "nvidia-driver-cuda-libs", "libnvidia-ml", "nvidia-kmod-common"),
           "nvidia-persistenced", "nvidia-fabricmanager", "nvlsm", ("nvlsm",),
           "Amazon Linux 2023 release notes, NVIDIA packages 580"),
    Layout("distribution", "debian", 535, _NEVER, "nvidia-open-kernel-dkms", "nvidia-kernel-dkms", "", "",
           ("nvidia-smi", "libcuda1"), "nvidia-persistenced", "", "",
           ("nvidia-persistenced", *_TOOLS),
           "packages.debian.org: bookworm, trixie (contrib, non-free)"),
    Layout("distribution", "ubuntu", 535, _NEVER, "nvidia-dkms-{branch}-server-open", "nvidia-dkms-{branch}-server",
           "linux-modules-nvidia-{branch}-server-open-{kernel}", "linux-modules-nvidia-{branch}-server-{kernel}",
           _user("-{branch}-server"), "nvidia-compute-utils-{branch}-server", "nvidia-fabricmanager-{branch}", "",
           ("linux-modules-nvidia-", "linux-objects-nvidia-", *_TOOLS), "packages.ubuntu.com: restricted, main"),
)

# What a distribution needs so that a hold is one (dnf reads its list only with this plugin).
HOLD_PACKAGES = {"rhel": "python3-dnf-plugin-versionlock"}  # NVIDIA driver installation guide: version locking

# What else belongs to a driver though its name has no "nvidia".
OTHER_NAMES = ("libcuda1", "libcudadebugger1", "libnvcuvid1", "libnvoptix1", "libnvsdm", "cuda-drivers", "nvlsm")

# Ubuntu's signatures of modules for one kernel: no part, since every branch shares them; they move with the modules.
SIGNATURES = "linux-signatures-nvidia-"  # packages.ubuntu.com: linux-restricted-modules

# Kernels: names, and beginnings of names, which end in a dash.
KERNEL_NAMES = (
    "linux-image-",  # Debian, Ubuntu
    "kernel", "kernel-core", "kernel-modules", "kernel-modules-core",  # kernel.spec of CentOS Stream 9
    "kernel-64k-core", "kernel-rt-core", "kernel-uek", "kernel-uek-core",  # its variants; Oracle Linux 9
)


@dataclass(frozen=True)
class SigningKey:
    """How a distribution makes the key that signs modules built by DKMS, and where it lies."""

    distribution: str
    command: str
    path: str
    source: str


SIGNING_KEYS = (
    SigningKey("debian", "dkms generate_mok", "/var/lib/dkms/mok.pub", "wiki.debian.org/SecureBoot; DKMS README"),
    SigningKey("rhel", "dkms generate_mok", "/var/lib/dkms/mok.pub", "DKMS README: Secure Boot"),
    SigningKey(
        "ubuntu",
        "update-secureboot-policy --new-key",
        "/var/lib/shim-signed/mok/MOK.der",
        "wiki.ubuntu.com/UEFI/SecureBoot",
    ),
)

# Modules of the kernel that take the boards before the driver can; all are kept out.
RIVALS = {
    "nouveau": "github.com/NVIDIA/ansible-role-nvidia-driver#44",
    "nova": "kernel.org: drivers/gpu/drm/nova, the module's name before nova_drm",
    "nova_core": "github.com/beclab/Olares#3963",
    "nova_drm": "github.com/beclab/Olares#3963",
}

# Xids after which a board is not fit to serve.
FATAL_XIDS = {
    48: "double bit ECC error", 62: "internal micro-controller halt", 64: "row remapping failed",
    74: "NVLink error", 79: "fallen off the bus", 95: "uncontained ECC error",
    119: "GSP timeout", 120: "GSP error", 136: "link training failed", 140: "unrecovered ECC error",
    143: "GPU initialisation failed", 154: "recovery action required",
}  # source: NVIDIA XID errors, catalogue
# Errors of NVLink 5 (Blackwell). The line says whether one is fatal; the others the link has repaired itself.
NVLINK_XIDS = {
    144: "SAW", 145: "RLW", 146: "TLW", 147: "TREX", 148: "NVLPW", 149: "NETIR", 150: "MSE",
}  # source: NVIDIA XID errors, catalogue: NVLink 5

# What the kernel log says of boards that nvidia-smi does not list, and what repairs it. The first one that is there
# counts: the second line also follows the first.
KERNEL_SIGNS = (
    (
        "requires use of the NVIDIA open kernel modules",
        "The kernel log says that a board wants the open kernel modules: set nvidia_driver_kernel_module to auto.",
        "github.com/NVIDIA/open-gpu-kernel-modules#872",
    ),
    (
        "RmInitAdapter failed",
        "The kernel log says that a board did not come up (RmInitAdapter failed): switch on Above 4G decoding in the"
        " firmware, then look at its power and its seat.",
        "github.com/NVIDIA/open-gpu-kernel-modules#862",
    ),
)
