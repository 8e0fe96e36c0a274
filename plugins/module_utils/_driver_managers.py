# Copyright (c) 2026, the gpufleet.sglang authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Room: NVIDIA drivers. Commands of apt and dnf, and what their answers say. Pure.

Private to the gpufleet.sglang collection; may change at any time.
"""

from __future__ import annotations

import re

# One transaction: nothing is asked, a version below the installed one is taken, held parts too, configuration stays.
APT = (
    "apt-get",
    "-q",
    "-y",
    "--no-install-recommends",
    "--allow-downgrades",
    "--allow-change-held-packages",
    "-o",
    "Dpkg::Options::=--force-confdef",
    "-o",
    "Dpkg::Options::=--force-confold",
    "-o",
    "APT::Get::AutomaticRemove=false",
)
# The headers of one more kernel push none of another kernel out.
DNF = (
    "dnf",
    "--setopt=install_weak_deps=False",
    "--setopt=installonly_limit=0",
    "--setopt=exit_on_lock=1",
    "--disableplugin=versionlock",
    "--allowerasing",
    "--noautoremove",
)

_INSTALL = re.compile(r"^Inst (\S+)(?: \[(\S+)\])? \((\S+) ")
# Without a version: configuration alone is purged (apt 2.6.1).
_REMOVE = re.compile(r"^(?:Remv|Purg) (\S+)(?: \[(\S+)\])?")


def printed_address(url):
    """Return an address as apt prints it (apt 2.6.1): without user and password, of a folder with one slash."""
    url = re.sub(r"^(\w[\w+.-]*://)[^/@]*@", r"\1", url.strip())
    return re.sub(r"^((?:file|copy):)/+", r"\1/", url).rstrip("/")


def apt_argv(packages, remove, lock_seconds, options=()):
    """Return the command of one apt transaction. ``packages``: (name, version or None for any)."""
    words = [name if version is None else f"{name}={version}" for name, version in packages]
    words += [f"{name}-" for name in remove]
    return [*APT, "-o", f"DPkg::Lock::Timeout={lock_seconds}", *options, "install", *words]


def apt_changes(text):
    """Return [{name, from, to}] of the answer of ``apt-get -s``; to is None for a removal."""
    found = []
    for line in text.splitlines():
        match = _INSTALL.match(line)
        if match:
            found.append({"name": match.group(1), "from": match.group(2), "to": match.group(3)})
            continue
        match = _REMOVE.match(line)
        if match:
            found.append({"name": match.group(1), "from": match.group(2), "to": None})
    return [dict(one, name=one["name"].split(":")[0]) for one in found]


def dnf_spec(name, version):
    """Return name-epoch:version-release for dnf."""
    return name if version is None else f"{name}-{version}"


def dnf_argv(packages, remove, answer, script):
    """Return the command of one dnf transaction. ``packages``: (name, version or None); ``answer``: -y or --assumeno.

    Both, what comes and what leaves, are one transaction in dnf's shell only: ``script`` is the file of its commands.
    """
    if packages and remove:
        return [*DNF, answer, "shell", script]
    if packages:
        return [*DNF, answer, "install", *(dnf_spec(*one) for one in packages)]
    return [*DNF, answer, "remove", *remove]


def dnf_unneeded_argv(remove):
    """Return the command that says what a removal would take with it, also what nothing needs any more after it."""
    return [*(word for word in DNF if word != "--noautoremove"), "--assumeno", "remove", *remove]


def dnf_script(packages, remove):
    """Return the commands of dnf's shell for one transaction."""
    words = " ".join(dnf_spec(*one) for one in packages)
    return f"install {words}\nremove {' '.join(remove)}\nrun\n"


def dnf_failed(text, rc, shell=False):
    """Return whether a transaction failed, or its simulation would. dnf's shell ends with 0 all the same."""
    if shell and re.search(r"^(?:No match for argument|Error: (?!Operation aborted)| ?Problem\b)", text, re.MULTILINE):
        return True
    return rc != 0 and "Operation aborted" not in text


_HEADINGS = {
    "Installing": "to",
    "Upgrading": "to",
    "Downgrading": "to",
    "Reinstalling": "to",
    "Removing": None,
    "Installing dependencies": "to",
    "Removing dependent packages": None,
    "Removing unused dependencies": None,
    "Removing conflicting packages": None,
    "Installing weak dependencies": "to",
}


def dnf_changes(text, installed):
    """Return [{name, from, to}] of the table that ``dnf --assumeno`` prints."""
    found, heading = [], ""
    # A name that is wider than its column has the rest of its row in the next line.
    for line in re.sub(r"^( \S+)\n {2,}", r"\1 ", text, flags=re.MULTILINE).splitlines():
        match = re.match(r"^([A-Z][a-z ]+):\s*$", line)
        if match:
            heading = match.group(1)
            continue
        # A package that another one obsoletes stands below it, and leaves.
        match = re.match(r"^ +replacing +(\S+)\.[^.\s]+ +(\S+)", line)
        if match:
            name = match.group(1)
            found.append({"name": name, "from": installed.get(name, match.group(2)), "to": None})
            continue
        match = re.match(r"^ (\S+)\s+\w+\s+(\S+)\s", line)
        if match and heading in _HEADINGS:
            name, version = match.groups()
            version = version if ":" in version else "0:" + version
            # What is new may have others of its name beside it: the headers of several kernels.
            before = None if heading.startswith("Installing") else installed.get(name)
            found.append({"name": name, "from": before, "to": version if _HEADINGS[heading] else None})
    return found


def locked(text, rc):
    """Return whether another process holds the package manager: apt says so, dnf ends with 200 (exit_on_lock)."""
    return rc == 200 or "Could not get lock" in text or "already locked by" in text


FAILURES = (
    (
        r"Could not get lock (\S+)\. It is held by process (\d+) \((.+?)\)",
        "Expected the lock {0} to be free, found it held by {2} (process {1}): wait for it, or raise"
        " nvidia_driver_lock_timeout_seconds.",
    ),
    (
        r"Could not get lock (\S+)",
        "Expected the lock {0} to be free, found it held by another process: wait for it, or raise"
        " nvidia_driver_lock_timeout_seconds.",
    ),
    (
        r"already locked by (\d+)\s+The application with PID \d+ is: (\S+)",
        "Expected dnf to be free, found it held by {1} (process {0}): wait for it, or raise"
        " nvidia_driver_lock_timeout_seconds.",
    ),
    (
        r"already locked by",
        "Expected dnf to be free, found it held by another process: wait for it, or raise"
        " nvidia_driver_lock_timeout_seconds.",
    ),
    (
        r"no cache for '(.+?)'",
        "Expected an index of every repository, found none of {0}: run dnf makecache on the host, or disable that"
        " repository.",
    ),
    (
        r"nothing provides (dkms)\b",
        "Expected a repository that has dkms, found that nothing provides {0}: in the RHEL family EPEL brings it"
        " (dnf install epel-release on the host), then run again.",
    ),
    # The second is apt 3 with sqv (Debian 13): molior-dbs/molior#47, tracelabs/tlosint-live#168.
    (
        r"(?:GPG error|verification failed): (\S+)[^\n]*?(?:NO_PUBKEY |Missing key )([0-9A-F]+)",
        "Expected an index of {0} signed by a key that this host trusts for it, found one signed by {1}: if it is the"
        " driver's, the owner changed the key, so compare the new one with what they publish and set"
        " nvidia_driver_repository_fingerprint; of any other repository repair the entry.",
    ),
    (
        r"(?:NO_PUBKEY |Missing key )([0-9A-F]+)",
        "Expected an index signed by the key that was fetched, found one signed by {0}: the owner changed the key, so"
        " compare the new one with what they publish and set nvidia_driver_repository_fingerprint.",
    ),
    (
        r"(EXPKEYSIG|KEYEXPIRED|REVKEYSIG|BADSIG|EXPSIG) ?([0-9A-F]*)",
        "Expected a valid signature of the repository, found {0}: fetch the newest key of its owner"
        " (nvidia_driver_repository_key and nvidia_driver_repository_fingerprint).",
    ),
    (
        r"verification failed: (\S+)[^\n]*error message is: ([^\n]+)",
        "Expected an index of {0} with a signature that this host accepts, found {1}: fetch the newest key of its owner"
        " (nvidia_driver_repository_key and nvidia_driver_repository_fingerprint).",
    ),
    (
        r"(?:repository|InRelease'?) .*is not signed|GPG check FAILED",
        "Expected a signed repository, found one without a valid signature: check nvidia_driver_repository_url.",
    ),
    (
        r"Release file for (\S+) is (not valid yet|expired) \(([^)]*)\)",
        "Expected an index that is valid now, found that of {0} {1} ({2}): set the clock of the host, or bring the"
        " mirror up to date, then run again.",
    ),
    (
        r"407 +Proxy Authentication Required|(?:code|response) 407\b",
        "Expected a proxy that lets this host through, found that it wants a password (407): set it in"
        " nvidia_driver_environment.",
    ),
    (
        r"(?:Failed to fetch (\S+) +(?:404\b|File not found)|Status code: 404 for (\S+))",
        "Expected the file {0}{1}, found none: the index is older than the repository, run again.",
    ),
    (
        r"Failed to fetch (\S+) +(?:Hash Sum mismatch|File has unexpected size)",
        "Expected {0} as the index describes it, found another file: the repository changes just now, or a proxy keeps"
        " an old one, so run again later.",
    ),
    (
        r"Failed to fetch (\S+) +([^\n]+)",
        "Expected an answer of {0}, found {1}: see the name, the network and the proxy (nvidia_driver_environment),"
        " then run again.",
    ),
    (
        r"Curl error \((\d+)\): ([^\n]*?) for (\S+)",
        "Expected an answer of {2}, found {1} (curl {0}): see the name, the network and the proxy"
        " (nvidia_driver_environment), then run again.",
    ),
    (
        r"enough free space in (\S+?)\.?(?:\n|$)",
        "Expected room for the packages, found too little in {0}: make some, then run again.",
    ),
    (
        r"At least (\S+) more space needed on the (\S+) filesystem",
        "Expected room for the packages, found {0} too little on {1}: make some, then run again.",
    ),
    (
        r"No space left on device",
        "Expected room for the packages, found no space left on a device: see df on the host, make some, then run"
        " again.",
    ),
    # What does not fit is told on stdout, in lines that are indented; by the solver of apt 3 behind its error.
    (
        r"unmet dependencies:\n((?: +\S[^\n]*\n?)+)",
        "Expected packages that fit together, found {0}: bring what is missing, or choose another"
        " nvidia_driver_version.",
    ),
    (
        r"Unable to satisfy dependencies\. ([^\n]+(?:\n +[^\n]+)*)",
        "Expected packages that fit together, found {0}: bring what is missing, or choose another"
        " nvidia_driver_version.",
    ),
    (
        r"dpkg was interrupted",
        "Expected a package manager in order, found an interrupted one: run dpkg --configure -a on the host.",
    ),
    (
        r"Conflicting values set for option Signed-By regarding source (\S+)",
        "Expected one entry for the repository {0}, found another one with another key: remove the other file in"
        " /etc/apt/sources.list.d, or set nvidia_driver_source to distribution.",
    ),
    (
        r"Bad return status for module build on kernel: (\S+)",
        "Expected the kernel module to build, found that DKMS failed for {0}: see make.log in /var/lib/dkms/nvidia*,"
        " then choose another nvidia_driver_version or kernel.",
    ),
    (
        r"Errors were encountered while processing:\n((?: +\S[^\n]*\n?)+)",
        "Expected every package to be configured, found that dpkg could not do it for {0}: see why (dpkg --configure -a"
        " on the host), then run again.",
    ),
)


def _said(text):
    """Return what stands in a sentence for a part of an answer: one line, no longer than a person reads."""
    return " ".join((text or "").split())[:300].rstrip(".")


def failure(text, rc):
    """Return one sentence for the answer of a package manager that failed."""
    for pattern, sentence in FAILURES:
        match = re.search(pattern, text)
        if match:
            return sentence.format(*(_said(group) for group in match.groups()))
    if rc in (124, 137):
        return "Expected an answer of the package manager, found none in time: see what it waits for, and run again."
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    errors = [line for line in lines if line.startswith(("E:", "Error:", "Problem", "- "))] or lines[-3:]
    said = " ".join(errors)[:500].rstrip(".")
    return f"Expected the package manager to succeed, found status {rc}: {said or 'no output'}."
