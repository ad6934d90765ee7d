// A preloaded library that holds a store's commits for as long as a test says: fdatasync and fsync of the file that
// is held wait until it is let go. The file that TEST_HELD_SYNC names holds four words: whether anything is held,
// the inode of the file that is (0: every file), how many calls wait now, and how many of those may yet pass.

#define _GNU_SOURCE
#include <dlfcn.h>
#include <fcntl.h>
#include <stdint.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

struct held {
    volatile uint64_t is_held, inode, waiting, may_pass;
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
    struct stat found;
    if (!held || !__atomic_load_n(&held->is_held, __ATOMIC_ACQUIRE))
        return 0;
    return !held->inode || (fstat(file, &found) == 0 && found.st_ino == held->inode);
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
