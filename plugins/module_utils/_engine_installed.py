# Copyright (c) 2026, the gpufleet.sglang authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""What is installed in an engine's virtual environment, read from its files. Private to the collection."""

from __future__ import annotations

import glob
import os
import re

from ansible_collections.gpufleet.sglang.plugins.module_utils._engine import scan_arguments, version_key
from ansible_collections.gpufleet.sglang.plugins.module_utils._engine_plugins import read_plugins

# Packages whose version says how the engine behaves or why it does not start.
PACKAGES = (
    "torch",
    "transformers",
    "triton",
    "sgl-kernel",
    "sglang-kernel",
    "flashinfer-python",
    "nvidia-nccl-cu12",
    "nvidia-nccl-cu13",
    "requests",
)


class EngineError(ValueError):
    """There is no engine where one was expected, or it cannot be read. The text is one sentence."""


def normalized(name):
    """Return the comparable form of a distribution name (PEP 503)."""
    return re.sub(r"[-_.]+", "-", name).lower()


def metadata_field(text, field):
    """Return the value of C(field) in the head of a METADATA text, or None."""
    head = text.split("\n\n", 1)[0]
    match = re.search(rf"^{re.escape(field)}:[ \t]*(.+?)[ \t]*$", head, re.MULTILINE)
    return match.group(1) if match else None


def torch_figures(text):
    """Return {torch_version, cuda_version, hip_version} from the text of torch/version.py."""

    def value(name):
        match = re.search(rf"^{name}(?:\s*:[^=\n]+)?\s*=\s*['\"]([^'\"]*)['\"]", text, re.MULTILINE)
        return match.group(1) if match else None

    return {"torch_version": value("__version__"), "cuda_version": value("cuda"), "hip_version": value("hip")}


def pyvenv_figures(text):
    """Return {python_version, home} from the text of pyvenv.cfg."""
    pairs = {
        key.strip().lower(): value.strip() for key, _sep, value in (line.partition("=") for line in text.splitlines())
    }
    return {"python_version": pairs.get("version") or pairs.get("version_info"), "home": pairs.get("home")}


def _read(path, limit=4 * 1024 * 1024):
    try:
        with open(path, encoding="utf-8", errors="replace") as handle:
            return handle.read(limit)
    except OSError:
        return ""


def site_packages(venv):
    """Return the package folder of the virtual environment C(venv)."""
    if not os.path.isdir(venv):
        found = "a file" if os.path.exists(venv) else "nothing"
        raise EngineError(
            f"Expected the virtual environment of an engine at {venv}, found {found}: install the engine, or"
            " correct the venv option."
        )
    folders = []
    for pattern in ("lib/python3*/site-packages", "lib64/python3*/site-packages", "lib/python3*/dist-packages"):
        for folder in sorted(glob.glob(os.path.join(glob.escape(venv), pattern))):
            if os.path.realpath(folder) not in [os.path.realpath(other) for other in folders]:
                folders.append(folder)
    holding = [
        folder
        for folder in folders
        if _distributions(folder, "sglang") or os.path.isdir(os.path.join(folder, "sglang"))
    ]
    if not folders or not holding:
        raise EngineError(
            "Expected SGLang in the virtual environment {}, found {}: install the engine there.".format(
                venv, "no package folder" if not folders else "no package sglang"
            )
        )
    return holding[0]


def _distributions(site, name):
    """Return the dist-info folders of the distribution C(name) in the package folder C(site)."""
    wanted = normalized(name)
    return [
        os.path.join(site, entry)
        for entry in sorted(os.listdir(site))
        if entry.endswith(".dist-info")
        and entry[0].lower() == wanted[0]
        and normalized(entry[: -len(".dist-info")].rsplit("-", 1)[0]) == wanted
    ]


def distribution_version(site, name):
    """Return the version of the distribution C(name), or None. Two at once are an error: an update was cut off."""
    versions = []
    for folder in _distributions(site, name):
        version = metadata_field(_read(os.path.join(folder, "METADATA")), "Version")
        if version and version not in versions:
            versions.append(version)
    if len(versions) > 1:
        raise EngineError(
            "Expected one version of {} in {}, found {}: an update was cut off, install the package again.".format(
                name, site, " and ".join(versions)
            )
        )
    return versions[0] if versions else None


def package_dir(site):
    """Return the folder of the package sglang: in C(site), or where an editable installation points to."""
    places = [site]
    for path in sorted(glob.glob(os.path.join(glob.escape(site), "*.pth"))):
        places += [line.strip() for line in _read(path).splitlines() if os.path.isabs(line.strip())]
    for place in places:
        folder = os.path.join(place, "sglang")
        if os.path.isfile(os.path.join(folder, "srt", "server_args.py")):
            return folder
    raise EngineError(
        f"Expected the sources of SGLang below {site}, found no sglang/srt/server_args.py: install the engine again."
    )


def read_engine(venv):
    """Return what engine_info returns for the virtual environment C(venv), without what it says of arguments.

    C(arguments) is name -> Argument, C(plugins) a tuple of Plugin.

    Raises EngineError or ValueError (one sentence).
    """
    site = site_packages(venv)
    version = distribution_version(site, "sglang")
    folder = package_dir(site)
    if version is None:
        match = re.search(
            r"^__version__\s*=\s*['\"]([^'\"]+)['\"]", _read(os.path.join(folder, "version.py")), re.MULTILINE
        )
        version = match.group(1) if match else None
    if version is None:
        raise EngineError(f"Expected the version of SGLang in {site}, found none: install the engine again.")
    version_key(version)
    accepted = scan_arguments(folder)
    torch = torch_figures(_read(os.path.join(site, "torch", "version.py")))
    packages = {name: distribution_version(site, name) for name in PACKAGES}
    figures = pyvenv_figures(_read(os.path.join(venv, "pyvenv.cfg")))
    in_path = re.search(r"python(3\.\d+)", site)
    console = os.path.join(venv, "bin", "sglang")
    python = os.path.join(venv, "bin", "python")
    return {
        "version": version,
        "torch_version": torch["torch_version"] or packages["torch"],
        "cuda_version": torch["cuda_version"],
        "hip_version": torch["hip_version"],
        "python_version": figures["python_version"] or (in_path.group(1) if in_path else None),
        "python": python if os.path.exists(python) else None,
        "package_dir": folder,
        "console_script": console if os.path.exists(console) else None,
        "requires_python": _requires_python(site),
        "packages": {name: found for name, found in packages.items() if found},
        "plugins": read_plugins(site),
        "arguments": accepted,
    }


def _requires_python(site):
    for folder in _distributions(site, "sglang"):
        return metadata_field(_read(os.path.join(folder, "METADATA")), "Requires-Python")
    return None
