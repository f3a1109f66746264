/* Between a process and the files of one folder: writes that fail, and a log of those that do not.

   FAULT_FOLDER is the folder; of every 1000 calls FAULT_RATE fail, by EIO or ENOSPC, as FAULT_SEED
   has it; FAULT_LOG gets what was done, in order: "W offset length path" and the bytes, "T length
   path", "S path" for a sync, "U path", and "R length" and the bytes of what is printed. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/types.h>
#include <unistd.h>

typedef ssize_t (*writer)(int, const void *, size_t);
typedef ssize_t (*placed)(int, const void *, size_t, off_t);

static ssize_t real_write(int fd, const void *data, size_t size) {
    static writer next;
    if (!next) next = (writer)dlsym(RTLD_NEXT, "write");
    return next(fd, data, size);
}

static int under(const char *path) {
    const char *folder = getenv("FAULT_FOLDER");
    return folder && strncmp(path, folder, strlen(folder)) == 0;
}

static int watched(int fd, char *path) {
    char link[64];
    snprintf(link, sizeof link, "/proc/self/fd/%d", fd);
    ssize_t size = readlink(link, path, 4000);
    if (size < 0) return 0;
    path[size] = 0;
    return under(path);
}

static int fails(int disk) {
    static unsigned long state;
    const char *rate = getenv("FAULT_RATE"), *seed = getenv("FAULT_SEED");
    if (!rate) return 0;
    if (!state) state = 88172645463325252UL + 7919UL * (seed ? strtoul(seed, 0, 10) : 0);
    state ^= state << 13; state ^= state >> 7; state ^= state << 17;
    if (state % 1000 >= strtoul(rate, 0, 10)) return 0;
    errno = disk && (state >> 40) % 2 ? ENOSPC : EIO;
    return 1;
}

static void logged(const char *head, const void *data, size_t size) {
    static int log = -1;
    const char *name = getenv("FAULT_LOG");
    if (!name) return;
    if (log < 0) log = open(name, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0600);
    real_write(log, head, strlen(head));
    if (size) real_write(log, data, size);
}

static ssize_t put(int fd, const void *data, size_t size, off_t offset, const char *call) {
    char path[4096], head[4200];
    if (watched(fd, path)) {
        if (fails(1)) return -1;
        off_t at = call ? offset : lseek(fd, 0, SEEK_CUR);
        snprintf(head, sizeof head, "W %lld %zu %s\n", (long long)at, size, path);
        logged(head, data, size);
    } else if (fd == 1) {
        snprintf(head, sizeof head, "R %zu\n", size);
        logged(head, data, size);
    }
    return call ? ((placed)dlsym(RTLD_NEXT, call))(fd, data, size, offset) : real_write(fd, data, size);
}

ssize_t write(int fd, const void *d, size_t n) { return put(fd, d, n, 0, 0); }
ssize_t pwrite(int fd, const void *d, size_t n, off_t at) { return put(fd, d, n, at, "pwrite"); }
ssize_t pwrite64(int fd, const void *d, size_t n, off_t at) { return put(fd, d, n, at, "pwrite64"); }

static int synced(int fd, const char *call) {
    char path[4096], head[4200];
    if (watched(fd, path)) {
        if (fails(0)) return -1;
        int done = ((int (*)(int))dlsym(RTLD_NEXT, call))(fd);
        snprintf(head, sizeof head, "S %s\n", path);
        if (done == 0) logged(head, 0, 0);
        return done;
    }
    return ((int (*)(int))dlsym(RTLD_NEXT, call))(fd);
}

int fsync(int fd) { return synced(fd, "fsync"); }
int fdatasync(int fd) { return synced(fd, "fdatasync"); }

static int cut(int fd, off_t size, const char *call) {
    char path[4096], head[4200];
    if (watched(fd, path)) {
        if (fails(0)) return -1;
        snprintf(head, sizeof head, "T %lld %s\n", (long long)size, path);
        logged(head, 0, 0);
    }
    return ((int (*)(int, off_t))dlsym(RTLD_NEXT, call))(fd, size);
}

int ftruncate(int fd, off_t size) { return cut(fd, size, "ftruncate"); }
int ftruncate64(int fd, off_t size) { return cut(fd, size, "ftruncate64"); }

int unlink(const char *path) {
    char head[4200];
    if (under(path)) {
        snprintf(head, sizeof head, "U %s\n", path);
        logged(head, 0, 0);
    }
    return ((int (*)(const char *))dlsym(RTLD_NEXT, "unlink"))(path);
}
