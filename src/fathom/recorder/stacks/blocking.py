"""Find out whether a thread is running, and which system call blocks it."""

from __future__ import annotations

import ctypes
import os
import platform


def _numbered(calls: str) -> dict[int, str]:
    return {int(number): name for number, name in (call.split() for call in calls.split(","))}


# System calls that may block.
_X86_64 = _numbered("""
    0 read, 1 write, 2 open, 3 close, 4 stat, 5 fstat, 6 lstat, 7 poll, 8 lseek, 9 mmap, 11 munmap,
    16 ioctl, 17 pread64, 18 pwrite64, 19 readv, 20 writev, 23 select, 24 sched_yield, 28 madvise, 34 pause,
    35 nanosleep, 40 sendfile, 42 connect, 43 accept, 44 sendto, 45 recvfrom, 46 sendmsg, 47 recvmsg,
    61 wait4, 65 semop, 72 fcntl, 73 flock, 74 fsync, 75 fdatasync, 82 rename, 87 unlink,
    128 rt_sigtimedwait, 202 futex, 208 io_getevents, 217 getdents64, 220 semtimedop, 230 clock_nanosleep,
    232 epoll_wait, 242 mq_timedsend, 243 mq_timedreceive, 247 waitid, 257 openat, 262 newfstatat,
    270 pselect6, 271 ppoll, 281 epoll_pwait, 285 fallocate, 288 accept4, 295 preadv, 296 pwritev,
    299 recvmmsg, 307 sendmmsg, 332 statx, 426 io_uring_enter, 441 epoll_pwait2, 449 futex_waitv
""")
_AARCH64 = _numbered("""
    22 epoll_pwait, 25 fcntl, 29 ioctl, 32 flock, 35 unlinkat, 47 fallocate, 56 openat, 57 close,
    61 getdents64, 62 lseek, 63 read, 64 write, 65 readv, 66 writev, 67 pread64, 68 pwrite64, 69 preadv,
    70 pwritev, 71 sendfile, 72 pselect6, 73 ppoll, 79 newfstatat, 80 fstat, 82 fsync, 83 fdatasync,
    95 waitid, 98 futex, 101 nanosleep, 115 clock_nanosleep, 124 sched_yield, 137 rt_sigtimedwait,
    182 mq_timedsend, 183 mq_timedreceive, 192 semtimedop, 193 semop, 202 accept, 203 connect, 206 sendto,
    207 recvfrom, 211 sendmsg, 212 recvmsg, 215 munmap, 222 mmap, 233 madvise, 242 accept4, 243 recvmmsg,
    260 wait4, 269 sendmmsg, 276 renameat2, 291 statx, 426 io_uring_enter, 441 epoll_pwait2,
    449 futex_waitv
""")
CALLS = {"x86_64": _X86_64, "AMD64": _X86_64, "aarch64": _AARCH64, "arm64": _AARCH64}
RUNNING = ("R", "W")  # states of a thread that is running or ready to run
PROCESSOR = 36  # field of /proc/PID/stat after the name: the processor that the thread ran on last
_LIBC = ctypes.CDLL(None)

State = tuple[bool | None, str | None]


class Activity:
    """Reads the state of one thread. Methods return None if the system does not report a value."""

    def __init__(self, pid: int, thread: int, root: str = "/proc") -> None:
        folder = f"{root}/{pid}/task/{thread}"
        self._names = CALLS.get(platform.machine(), {})
        self._call = _open(f"{folder}/syscall")
        self._stat = _open(f"{folder}/stat")
        self._scheduler = _open(f"{folder}/schedstat")
        self._ran, self._waited = self._schedule() or (0, 0)

    def now(self) -> State:
        """Return (whether the thread is running or ready, the system call that blocks it or None)."""
        try:
            if self._call is not None:
                return self._by_call(os.pread(self._call, 16, 0))
            if self._stat is not None:
                return os.pread(self._stat, 512, 0).rpartition(b") ")[2][:1].decode() in RUNNING, None
        except OSError:
            pass
        return None, None

    def on_processor(self) -> float | None:
        """Return the time that the thread ran since the last call, as a share of the time it was runnable."""
        now = self._schedule()
        if now is None:
            return None
        ran, waited = now[0] - self._ran, now[1] - self._waited
        self._ran, self._waited = now
        return round(ran / (ran + waited), 3) if ran + waited > 0 else None

    def displaced(self) -> bool:
        """Return whether the thread last ran on the core that we are using now, so that it cannot run."""
        if self._stat is None:
            return False
        try:
            fields = os.pread(self._stat, 1024, 0).rpartition(b") ")[2].split()
            return int(fields[PROCESSOR]) == _LIBC.sched_getcpu()
        except (OSError, ValueError, IndexError, AttributeError):
            return False

    def _schedule(self) -> tuple[int, int] | None:
        """Return the nanoseconds that the thread ran, and the nanoseconds that it waited for a core."""
        if self._scheduler is None:
            return None
        try:
            ran, waited, _ = map(int, os.pread(self._scheduler, 64, 0).split())
        except (OSError, ValueError):
            return None
        return ran, waited

    def _by_call(self, text: bytes) -> State:
        number = text.split(b" ", 1)[0].strip()
        if not number.isdigit():  # "running", or -1: blocked outside a system call, as in a page fault
            return number == b"running", "page fault" if number == b"-1" else None
        return False, self._names.get(int(number), f"system call {int(number)}")

    def close(self) -> None:
        """Close the files."""
        for file in (self._call, self._stat, self._scheduler):
            if file is not None:
                os.close(file)
        self._call = self._stat = self._scheduler = None


def _open(path: str) -> int | None:
    try:
        file = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    except OSError:
        return None
    try:
        os.pread(file, 16, 0)
    except OSError:
        os.close(file)
        return None
    return file
