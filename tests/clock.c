// A preloaded library that gives processes under test a clock that the test owns: what they read from
// CLOCK_REALTIME and CLOCK_MONOTONIC is the time of the machine plus what the test has added, or stands still.
//
// The file that TEST_CLOCK names holds the number of settings so far, and the last SETTINGS of them (see clock.py,
// which writes them). A change takes effect with one aligned write, so that no reader sees half of one.
//
// Waits of the kernel know nothing of this clock. Those that servers use (epoll_wait, and futex with an absolute
// time, which is what std's condition variables and parked threads use) are cut into slices, so that a wait ends
// within SLICE_MS of the moment at which the clock passes its end. Sleeping threads (nanosleep) are not changed.

#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <linux/futex.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdlib.h>
#include <sys/epoll.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

// Short beside what tests wait for, and so long that waking up costs less than a hundredth of a core.
enum { SLICE_MS = 10 };
enum { SETTINGS = 64 };
static const int64_t SECOND = 1000000000;

struct setting {
    int64_t wall_ns;         // added to CLOCK_REALTIME
    int64_t monotonic_ns;    // added to CLOCK_MONOTONIC
    int64_t stopped_ns;      // CLOCK_MONOTONIC of the machine from which on both stand still; 0 while they run
    int64_t stopped_wall_ns; // CLOCK_REALTIME of the machine then
};

struct control {
    int64_t latest;
    struct setting settings[SETTINGS];
};

static volatile struct control *control;
static int (*next_clock_gettime)(clockid_t, struct timespec *);
static int (*next_epoll_wait)(int, struct epoll_event *, int, int);
static long (*next_syscall)(long, long, long, long, long, long, long);

__attribute__((constructor)) static void map_control(void) {
    next_clock_gettime = (int (*)(clockid_t, struct timespec *))dlsym(RTLD_NEXT, "clock_gettime");
    next_epoll_wait = (int (*)(int, struct epoll_event *, int, int))dlsym(RTLD_NEXT, "epoll_wait");
    next_syscall = (long (*)(long, long, long, long, long, long, long))dlsym(RTLD_NEXT, "syscall");
    const char *path = getenv("TEST_CLOCK");
    int file = path ? open(path, O_RDONLY | O_CLOEXEC) : -1;
    if (file < 0)
        _exit(121);
    void *mapped = mmap(NULL, sizeof *control, PROT_READ, MAP_SHARED, file, 0);
    if (mapped == MAP_FAILED)
        _exit(122);
    control = mapped;
    close(file);
}

static int64_t machine_ns(clockid_t which) {
    struct timespec now;
    next_clock_gettime(which, &now);
    return now.tv_sec * SECOND + now.tv_nsec;
}

// The time by the setting that is in effect when the machine's is read: a thread that is paused between the two looks
// once more.
static int64_t now_ns(clockid_t which) {
    for (;;) {
        int64_t latest = __atomic_load_n(&control->latest, __ATOMIC_ACQUIRE);
        struct setting setting = *(struct setting *)&control->settings[latest % SETTINGS];
        int64_t now = machine_ns(which);
        if (latest != __atomic_load_n(&control->latest, __ATOMIC_ACQUIRE))
            continue;
        int is_wall = which == CLOCK_REALTIME;
        int64_t stopped = is_wall ? setting.stopped_wall_ns : setting.stopped_ns;
        return (stopped && stopped < now ? stopped : now) + (is_wall ? setting.wall_ns : setting.monotonic_ns);
    }
}

static struct timespec timespec_of(int64_t ns) {
    return (struct timespec){.tv_sec = ns / SECOND, .tv_nsec = ns % SECOND};
}

int clock_gettime(clockid_t which, struct timespec *now) {
    // Other libraries may ask before the constructor has run.
    if (!control)
        return (int)syscall(SYS_clock_gettime, which, now);
    if (which != CLOCK_MONOTONIC && which != CLOCK_REALTIME)
        return next_clock_gettime(which, now);
    *now = timespec_of(now_ns(which));
    return 0;
}

int epoll_wait(int epoll, struct epoll_event *events, int most, int timeout_ms) {
    // A negative timeout waits for events only.
    if (timeout_ms <= SLICE_MS)
        return next_epoll_wait(epoll, events, most, timeout_ms);
    int64_t end = now_ns(CLOCK_MONOTONIC) + (int64_t)timeout_ms * 1000000;
    for (;;) {
        int ready = next_epoll_wait(epoll, events, most, SLICE_MS);
        if (ready != 0 || now_ns(CLOCK_MONOTONIC) >= end)
            return ready;
    }
}

// The arguments of a system call are words, however many there are.
long syscall(long number, ...) {
    va_list arguments;
    va_start(arguments, number);
    long word[6];
    for (int at = 0; at < 6; at++)
        word[at] = va_arg(arguments, long);
    va_end(arguments);
    if (!next_syscall)
        next_syscall = (long (*)(long, long, long, long, long, long, long))dlsym(RTLD_NEXT, "syscall");
    long command = word[1] & FUTEX_CMD_MASK;
    const struct timespec *until = (const struct timespec *)word[3];
    if (!control || number != SYS_futex || command != FUTEX_WAIT_BITSET || !until || (word[1] & FUTEX_CLOCK_REALTIME))
        return next_syscall(number, word[0], word[1], word[2], word[3], word[4], word[5]);
    int64_t end = until->tv_sec * SECOND + until->tv_nsec;
    for (;;) {
        int64_t left = end - now_ns(CLOCK_MONOTONIC);
        if (left <= 0) {
            errno = ETIMEDOUT;
            return -1;
        }
        int64_t slice = left < SLICE_MS * 1000000 ? left : SLICE_MS * 1000000;
        struct timespec at = timespec_of(machine_ns(CLOCK_MONOTONIC) + slice);
        long woken = next_syscall(number, word[0], word[1], word[2], (long)&at, word[4], word[5]);
        if (woken == 0 || errno != ETIMEDOUT)
            return woken;
    }
}
