/* A disk with faults: loaded into redis-server by LD_PRELOAD, told what to do by a control file that it reads at every
 * call. No root needed.
 *
 *   $SHIM_CONTROL  one line: "fsync_delay_ms fsync_errno write_errno once full_at_bytes"
 *                  once = 1: the fsync error strikes once and is then forgotten, as Linux reports it.
 *                  full_at_bytes > 0: no file grows beyond it. What fits is written (a short write), then ENOSPC.
 *   $SHIM_LOG      one line per successful fsync: "device inode bytes", bytes as they were before the call. A power cut
 *                  is modelled by SIGKILL and cutting each file to the last size logged. "device inode -1": the name of
 *                  the file was removed, and another file may get its inode number.
 *
 * Only files below $SHIM_DIR are touched. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/uio.h>
#include <time.h>
#include <unistd.h>

struct orders {
    int delay_ms, fsync_errno, write_errno, once;
    long long full_at_bytes;
};

static int (*real_fsync)(int);
static int (*real_fdatasync)(int);
static int (*real_unlink)(const char *);
static int (*real_rename)(const char *, const char *);
static ssize_t (*real_write)(int, const void *, size_t);

__attribute__((constructor)) static void find_real(void) {
    real_fsync = dlsym(RTLD_NEXT, "fsync");
    real_fdatasync = dlsym(RTLD_NEXT, "fdatasync");
    real_write = dlsym(RTLD_NEXT, "write");
    real_rename = dlsym(RTLD_NEXT, "rename");
    real_unlink = dlsym(RTLD_NEXT, "unlink");
}

static int watched(int fd) {
    const char *dir = getenv("SHIM_DIR");
    char link[64], path[PATH_MAX];
    if (!dir) return 0;
    snprintf(link, sizeof link, "/proc/self/fd/%d", fd);
    ssize_t length = readlink(link, path, sizeof path - 1);
    if (length < 0) return 0;
    path[length] = 0;
    return strncmp(path, dir, strlen(dir)) == 0 && strstr(path, "aof") != NULL;
}

static struct orders read_orders(void) {
    struct orders o = {0, 0, 0, 0, 0};
    char text[128];
    const char *path = getenv("SHIM_CONTROL");
    int fd = path ? open(path, O_RDONLY | O_CLOEXEC) : -1;
    if (fd < 0) return o;
    ssize_t length = read(fd, text, sizeof text - 1);
    close(fd);
    if (length <= 0) return o;
    text[length] = 0;
    sscanf(text, "%d %d %d %d %lld", &o.delay_ms, &o.fsync_errno, &o.write_errno, &o.once, &o.full_at_bytes);
    return o;
}

static void forget_error(void) {
    int fd = open(getenv("SHIM_CONTROL"), O_WRONLY | O_TRUNC | O_CLOEXEC);
    if (fd >= 0) {
        real_write(fd, "0 0 0 0 0\n", 10);
        close(fd);
    }
}

static void note(const struct stat *file, long long bytes) {
    const char *log = getenv("SHIM_LOG");
    int out = log ? open(log, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0600) : -1;
    if (out < 0) return;
    char line[96];
    int n = snprintf(line, sizeof line, "%lu %lu %lld\n", (unsigned long)file->st_dev, (unsigned long)file->st_ino, bytes);
    real_write(out, line, (size_t)n);
    close(out);
}

static int synced(int fd, int (*real)(int)) {
    if (!watched(fd)) return real(fd);
    struct stat before;
    int known = fstat(fd, &before) == 0;
    struct orders o = read_orders();
    for (int slept_ms = 0; slept_ms < o.delay_ms; slept_ms += 10) {
        struct timespec t = {0, 10 * 1000000L};
        nanosleep(&t, NULL);
        o = read_orders(); /* orders may change while the disk is slow; a healed one is slow no longer */
    }
    if (o.fsync_errno) {
        if (o.once) forget_error();
        errno = o.fsync_errno;
        return -1;
    }
    int result = real(fd);
    if (result == 0 && known) note(&before, (long long)before.st_size);
    return result;
}

int fsync(int fd) { return synced(fd, real_fsync); }
int fdatasync(int fd) { return synced(fd, real_fdatasync); }

int unlink(const char *path) {
    struct stat file;
    int known = strstr(path, "aof") != NULL && stat(path, &file) == 0;
    int result = real_unlink(path);
    if (result == 0 && known) note(&file, -1);
    return result;
}

int rename(const char *from, const char *to) {
    struct stat file;
    int known = strstr(to, "aof") != NULL && stat(to, &file) == 0;
    int result = real_rename(from, to);
    if (result == 0 && known) note(&file, -1);
    return result;
}

ssize_t write(int fd, const void *data, size_t length) {
    if (watched(fd)) {
        struct orders o = read_orders();
        if (o.write_errno) {
            errno = o.write_errno;
            return -1;
        }
        struct stat file;
        if (o.full_at_bytes && fstat(fd, &file) == 0 && S_ISREG(file.st_mode)) {
            long long room = o.full_at_bytes - (long long)file.st_size;
            if (room <= 0) {
                errno = ENOSPC;
                return -1;
            }
            if ((long long)length > room) length = (size_t)room;
        }
    }
    return real_write(fd, data, length);
}
