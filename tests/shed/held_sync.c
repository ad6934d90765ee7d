// A preloaded library that holds a store's commits for as long as a test says: fdatasync and fsync of the files that
// are held wait until they are let go, and so does msync, if all files are held. The file that TEST_HELD_SYNC names holds
// three words: whether anything is held, how many calls wait now, and how many of those may yet pass; after them the
// beginning of the paths of the files that are held.

#define _GNU_SOURCE
#include <dlfcn.h>
#include <fcntl.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>
#include <unistd.h>

struct held {
    volatile uint64_t is_held, waiting, may_pass;
    char begins[4072];
};

static struct held *held;

__attribute__((constructor)) static void map_held(void) {
    const char *path = getenv("TEST_HELD_SYNC");
    int file = path ? open(path, O_RDWR | O_CLOEXEC) : -1;
    if (file < 0)
        _exit(121);
    void *mapped = mmap(NULL, sizeof *held, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
    if (mapped == MAP_FAILED)
        _exit(122);
    held = mapped;
    close(file);
}

static int is_held(int file) {
    char link[64], path[sizeof held->begins] = "";
    if (!held || !__atomic_load_n(&held->is_held, __ATOMIC_ACQUIRE))
        return 0;
    if (file < 0)
        return !*held->begins;
    snprintf(link, sizeof link, "/proc/self/fd/%d", file);
    return readlink(link, path, sizeof path - 1) > 0 && !strncmp(path, held->begins, strlen(held->begins));
}

static int may_pass(void) {
    uint64_t left = __atomic_load_n(&held->may_pass, __ATOMIC_ACQUIRE);
    while (left > 0)
        if (__atomic_compare_exchange_n(&held->may_pass, &left, left - 1, 0, __ATOMIC_ACQ_REL, __ATOMIC_ACQUIRE))
            return 1;
    return 0;
}

static void wait_while_held(int file) {
    const struct timespec moment = {.tv_nsec = 1000000};
    if (!is_held(file))
        return;
    __atomic_fetch_add(&held->waiting, 1, __ATOMIC_ACQ_REL);
    while (is_held(file) && !may_pass())
        nanosleep(&moment, NULL);
    __atomic_fetch_sub(&held->waiting, 1, __ATOMIC_ACQ_REL);
}

int fdatasync(int file) {
    static int (*next)(int);
    if (!next)
        next = (int (*)(int))dlsym(RTLD_NEXT, "fdatasync");
    wait_while_held(file);
    return next(file);
}

int fsync(int file) {
    static int (*next)(int);
    if (!next)
        next = (int (*)(int))dlsym(RTLD_NEXT, "fsync");
    wait_while_held(file);
    return next(file);
}

// It has no descriptor that would tell the file.
int msync(void *begin, size_t len, int flags) {
    static int (*next)(void *, size_t, int);
    if (!next)
        next = (int (*)(void *, size_t, int))dlsym(RTLD_NEXT, "msync");
    wait_while_held(-1);
    return next(begin, len, flags);
}
