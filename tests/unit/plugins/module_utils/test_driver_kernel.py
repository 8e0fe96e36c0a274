# Copyright (c) 2026, the gpufleet.sglang authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

import pytest

from ansible_collections.gpufleet.sglang.plugins.module_utils import _driver_kernel as kernel


@pytest.mark.parametrize(
    ("path", "release"),
    [
        ("vmlinuz-6.1.0-28-amd64", "6.1.0-28-amd64"),
        ("/boot/vmlinuz-5.14.0-503.11.1.el9_5.x86_64\n", "5.14.0-503.11.1.el9_5.x86_64"),
        ("/boot/vmlinuz-0-rescue-1f0c1e2d3a4b", None),
        ("vmlinuz.old", None),
        ("initrd.img-6.1.0-28-amd64", None),
        ("", None),
    ],
)
def test_the_release_is_that_of_the_image(path, release):
    assert kernel.release_of(path) == release


def with_modules(folder, *releases):
    """Return a folder that has modules of these releases."""
    for release in releases:
        (folder / release).mkdir(parents=True)
    return str(folder)


def test_the_newest_is_so_by_number_and_not_by_letter(tmp_path):
    modules = with_modules(tmp_path, "6.1.0-9-amd64", "6.1.0-28-amd64")
    assert kernel.newest(["vmlinuz-6.1.0-9-amd64", "vmlinuz-6.1.0-28-amd64", "config-7.0"], modules) == "6.1.0-28-amd64"
    assert kernel.newest(["config-7.0"], modules) is None


@pytest.mark.parametrize("copy", ["6.1.0-28-amd64.old", "6.1.0-28-amd64.efi.signed", "6.1.0-28-amd64.dpkg-bak"])
def test_a_copy_of_an_image_is_no_kernel_that_boots(tmp_path, copy):
    modules = with_modules(tmp_path, "6.1.0-28-amd64")
    assert kernel.newest(["vmlinuz-6.1.0-28-amd64", "vmlinuz-" + copy], modules) == "6.1.0-28-amd64"


def test_grubby_is_asked_where_there_is_one(tmp_path):
    (tmp_path / "vmlinuz-6.12.0-1").touch()
    asked = []

    def chosen(argv):
        asked.append(argv)
        return 0, "/boot/vmlinuz-5.14.0-427.el9.x86_64\n", ""

    assert kernel.next_release(chosen, str(tmp_path)) == "5.14.0-427.el9.x86_64"
    assert asked == [["grubby", "--default-kernel"]]


def test_without_grubby_the_newest_image_boots(tmp_path):
    for name in ("vmlinuz-6.8.0-9-generic", "vmlinuz-6.8.0-51-generic", "vmlinuz-6.8.0-51-generic.old", "grub"):
        (tmp_path / name).touch()
    modules = with_modules(tmp_path / "modules", "6.8.0-9-generic", "6.8.0-51-generic")
    assert kernel.next_release(lambda argv: (127, "", "none"), str(tmp_path), modules) == "6.8.0-51-generic"


def test_a_host_without_images_tells_nothing(tmp_path):
    assert kernel.next_release(lambda argv: (127, "", ""), str(tmp_path)) is None
    assert kernel.next_release(lambda argv: (127, "", ""), str(tmp_path / "none")) is None


@pytest.mark.parametrize(
    ("path", "found"),
    [
        ("updates/dkms/nvidia.ko", True),
        ("extra/nvidia.ko.xz", True),
        ("updates/dkms/nvidia-current.ko", True),
        ("updates/dkms/nvidia-tesla-535.ko.zst", True),
        ("kernel/drivers/video/fbdev/nvidia/nvidiafb.ko", False),
        ("kernel/drivers/perf/nvidia-cspmu.ko", False),
        ("kernel/drivers/i2c/busses/i2c-nvidia-gpu.ko", False),
    ],
)
def test_the_module_is_found_where_dkms_or_a_package_put_it(tmp_path, path, found):
    place = tmp_path / "6.1.0-28-amd64" / path
    place.parent.mkdir(parents=True)
    place.touch()
    assert kernel.has_module("6.1.0-28-amd64", str(tmp_path)) is found
    assert kernel.has_module("6.1.0-29-amd64", str(tmp_path)) is False


def test_headers_are_what_build_leads_to(tmp_path):
    (tmp_path / "6.1.0-28-amd64" / "build").mkdir(parents=True)
    assert kernel.has_headers("6.1.0-28-amd64", str(tmp_path)) is True
    assert kernel.has_headers("6.1.0-29-amd64", str(tmp_path)) is False


def test_the_version_that_the_file_of_a_module_says():
    asked = []

    def modinfo(argv):
        asked.append(argv)
        return 0, "580.95.05\n", ""

    assert kernel.module_version(modinfo, "6.8.0-79-generic") == "580.95.05"
    assert asked == [["modinfo", "-k", "6.8.0-79-generic", "-F", "version", "nvidia"]]
    assert kernel.module_version(lambda argv: (1, "", "not found"), "6.8.0-79-generic") is None


@pytest.mark.parametrize(
    ("older", "newer"),
    [
        ("5.14.0-570.el9.x86_64", "5.14.0-570.1.1.el9_6.x86_64"),
        ("5.14.0-503.11.1.el9_5.x86_64", "5.14.0-570.el9.x86_64"),
        ("6.1.0-9-amd64", "6.1.0-28-amd64"),
        ("6.12.9+deb13-amd64", "6.12.32+deb13-amd64"),
        ("6.8.0-79-generic", "6.8.0-101-generic"),
        ("6.12~rc1-amd64", "6.12-amd64"),
        ("6.1.0-28-amd64", "6.1.0-28-rt-amd64"),
    ],
)
def test_releases_are_compared_part_by_part(tmp_path, older, newer):
    images = [f"/boot/vmlinuz-{one}" for one in (newer, older)]
    modules = with_modules(tmp_path, older, newer)
    assert kernel.newest(images, modules) == kernel.newest(images[::-1], modules) == newer


def test_a_site_has_a_key_of_its_own_for_modules(tmp_path):
    settings = (str(tmp_path / "framework.conf"), str(tmp_path / "framework.conf.d" / "*.conf"))
    usual = ("/var/lib/dkms/mok.pub", "/var/lib/shim-signed/mok/MOK.der")
    assert kernel.certificates(settings) == usual
    (tmp_path / "framework.conf").write_text("# mok_certificate=/var/lib/dkms/mok.pub\n")
    assert kernel.certificates(settings) == usual
    (tmp_path / "framework.conf.d").mkdir()
    site = tmp_path / "framework.conf.d" / "site.conf"
    site.write_text('mok_signing_key="/root/a.key"\nmok_certificate="/root/a.der"\n')
    assert kernel.certificates(settings) == ("/root/a.der",)
    site.write_text('mok_certificate="$dkms_tree/mok.pub"\n')
    assert kernel.certificates(settings) == usual
