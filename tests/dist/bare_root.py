"""A root folder with nothing but what maintainer scripts may use: no package of this machine, no service."""

import os
import shutil
import stat
import subprocess
from pathlib import Path

# Of Debian's essential packages, and of those that the package depends on (`passwd`).
COMMANDS = """
sh basename cat chgrp chmod chown cp cut dirname echo find head id install ln mkdir mv od rm rmdir sed stat tr useradd
""".split()
# Depended on, and not installed here.
PRESENT = ["ca-certificates", "passwd"]
ENVIRONMENT = {"PATH": "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin", "LC_ALL": "C"}


def libraries(program):
    """The shared libraries of a program with its loader; none if it is static."""
    shown = subprocess.run(["ldd", program], capture_output=True, text=True)
    if shown.returncode:
        return []
    words = shown.stdout.split()
    return [word for word in words if word.startswith("/")]


class BareRoot:
    def __init__(self, folder):
        self.path = Path(folder)
        for name in ["bin", "sbin", "usr/bin", "usr/sbin", "usr/share", "etc", "dev", "var/lib/dpkg/info", "var/lib/dpkg/updates"]:
            (self.path / name).mkdir(parents=True, exist_ok=True)
        for name, number in [("null", 3), ("urandom", 9)]:
            node = self.path / "dev" / name
            os.mknod(node, 0o666 | stat.S_IFCHR, os.makedev(1, number))
            node.chmod(0o666)
        self.write("etc/passwd", "root:x:0:0::/root:/bin/sh\n")
        self.write("etc/group", "root:x:0:\n")
        self.write("etc/shadow", "root:*:19000:0:99999:7:::\n", 0o640)
        self.write("etc/nsswitch.conf", "passwd: files\ngroup: files\nshadow: files\n")
        fields = "Status: install ok installed\nVersion: 1\nArchitecture: all\nMaintainer: none\nDescription: none\n"
        self.write("var/lib/dpkg/status", "\n".join(f"Package: {name}\n{fields}" for name in PRESENT))
        self.copy("/etc/ssl/certs/ca-certificates.crt", self.path / "etc/ssl/certs/ca-certificates.crt")
        for name in COMMANDS:
            found = shutil.which(name, path=ENVIRONMENT["PATH"])
            assert found, f"{name} is missing on this machine"
            self.copy(Path(found).resolve(), self.path / "bin" / name)
            self.add_libraries(found)

    def copy(self, source, target):
        target.parent.mkdir(parents=True, exist_ok=True)
        if not target.exists():
            shutil.copy(source, target)

    def add_libraries(self, program):
        for library in libraries(program):
            self.copy(library, self.path / library.lstrip("/"))

    def write(self, name, text, mode=0o644):
        file = self.path / name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text)
        file.chmod(mode)

    def uid(self, name):
        """User and group ID of a user in this root; `None` if there is none."""
        for line in (self.path / "etc/passwd").read_text().splitlines():
            fields = line.split(":")
            if fields[0] == name:
                return int(fields[2]), int(fields[3])
        return None

    def mode(self, name):
        """Mode, owner and group of a file, as numbers."""
        state = (self.path / name.lstrip("/")).lstat()
        return oct(stat.S_IMODE(state.st_mode)), state.st_uid, state.st_gid

    def start(self, command, *, user=(0, 0), folder="/", environment=None, **options):
        """Starts a command in this root, as this user and without any other group."""

        def enter():
            os.chroot(self.path)
            os.chdir(folder)
            os.setgroups([])
            os.setgid(user[1])
            os.setuid(user[0])
            os.umask(0o077)

        return subprocess.Popen(
            command, env=ENVIRONMENT | (environment or {}), preexec_fn=enter, text=True, stdin=subprocess.DEVNULL, **options
        )

    def run(self, command, **options):
        """Runs a command to its end, and returns its output; a failure fails the test."""
        process = self.start(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, **options)
        output, errors = process.communicate(timeout=60)
        assert process.returncode == 0, f"{command}: exit code {process.returncode}\n{output}{errors}"
        return output

    def refuses(self, command, **options):
        """Runs a command that must fail, and returns its output."""
        process = self.start(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, **options)
        output, _ = process.communicate(timeout=60)
        assert process.returncode == 1, f"{command}: exit code {process.returncode}\n{output}"
        return output

    def dpkg(self, *arguments):
        """Runs dpkg on this root; scripts of packages run inside."""
        # Nothing is flushed: the root is removed soon.
        command = ["dpkg", f"--root={self.path}", "--force-unsafe-io", "--force-not-root", *arguments]
        environment = os.environ | {"DEBIAN_FRONTEND": "noninteractive", "LC_ALL": "C"}
        environment["PATH"] += ":/usr/sbin:/sbin"
        done = subprocess.run(command, capture_output=True, text=True, env=environment)
        assert done.returncode == 0, f"{command}: {done.stdout}{done.stderr}"
        return done.stdout + done.stderr
