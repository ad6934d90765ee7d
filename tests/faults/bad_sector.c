// A preloaded library that makes one sector of one file unreadable, as a disk does: reads of it fail with
// EIO until it is written as a whole. The sector is named by four words in the file that
// TEST_BAD_SECTOR names: inode, first byte, length (0: none), and the count of reads that failed.

#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <stdint.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

struct sector {
    volatile uint64_t inode, first, length, failed;
};

static struct sector *sector;

__attribute__((constructor)) static void map_sector(void) {
    const char *path = getenv("TEST_BAD_SECTOR");
    int file = path ? open(path, O_RDWR | O_CLOEXEC) : -1;
    if (file < 0)
        _exit(121);
    void *mapped = mmap(NULL, sizeof *sector, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
    if (mapped == MAP_FAILED)
        _exit(122);
    sector = mapped;
    close(file);
}

static int is_of_file(int file) {
    struct stat found;
    return fstat(file, &found) == 0 && found.st_ino == sector->inode;
}

ssize_t pread64(int file, void *out, size_t count, off64_t at) {
    static ssize_t (*next)(int, void *, size_t, off64_t);
    if (!next)
        next = (ssize_t(*)(int, void *, size_t, off64_t))dlsym(RTLD_NEXT, "pread64");
    uint64_t first = sector->first, length = sector->length;
    int overlaps = length && (uint64_t)at < first + length && first < (uint64_t)at + count;
    if (overlaps && is_of_file(file)) {
        __atomic_fetch_add(&sector->failed, 1, __ATOMIC_RELAXED);
        errno = EIO;
        return -1;
    }
    return next(file, out, count, at);
}

ssize_t pwrite64(int file, const void *from, size_t count, off64_t at) {
    static ssize_t (*next)(int, const void *, size_t, off64_t);
    if (!next)
        next = (ssize_t(*)(int, const void *, size_t, off64_t))dlsym(RTLD_NEXT, "pwrite64");
    ssize_t written = next(file, from, count, at);
    uint64_t first = sector->first, length = sector->length;
    int covers = length && (uint64_t)at <= first && first + length <= (uint64_t)at + count;
    if (written == (ssize_t)count && covers && is_of_file(file))
        sector->length = 0;
    return written;
}
