"""Stands for dnf's plugin versionlock, which Debian does not have: of what is listed, other versions are not seen.

The list has a line name-epoch:version-release.* for each package, as `dnf versionlock` writes it.
"""

import fnmatch
import pathlib

import dnf

LIST = pathlib.Path("/etc/dnf/plugins/versionlock.list")


class Versionlock(dnf.Plugin):
    name = "versionlock"

    def sack(self):
        lines = LIST.read_text().splitlines() if LIST.exists() else []
        locks = [line.strip() for line in lines if line.strip() and not line.startswith("#")]
        packages = self.base.sack.query().available()
        locked = {package.name for package in packages if any(fnmatch.fnmatch(spec(package), one) for one in locks)}
        others = [
            package
            for package in packages
            if package.name in locked and not any(fnmatch.fnmatch(spec(package), one) for one in locks)
        ]
        self.base.sack.add_excludes(packages.filter(pkg=others))


def spec(package):
    return f"{package.name}-{package.epoch}:{package.version}-{package.release}.{package.arch}"
