#define _GNU_SOURCE
#include "system_calls.h"
#include "file_system_calls.h"

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdio.h>
#include <sys/file.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

static int real_open(const char *path, int flags, int mode) {
    /* O_NONBLOCK: a pipe in the place of a file must not hold us; regular files do not care. */
    return open(path, flags | O_CLOEXEC | O_NONBLOCK, (mode_t)mode);
}

static int real_close(int fd) { return close(fd); }

static ssize_t real_pwritev(int fd, const struct iovec *parts, int part_count, int64_t position) {
    /* One part is the usual case, and pwrite skips the import of the iovec array. */
    if (part_count == 1) {
        return pwrite(fd, parts[0].iov_base, parts[0].iov_len, position);
    }
    return pwritev(fd, parts, part_count, position);
}

static ssize_t real_pread(int fd, void *into, size_t length, int64_t position) {
    return pread(fd, into, length, position);
}

static void *real_mmap(int fd, size_t length) {
    return mmap(NULL, length, PROT_READ, MAP_SHARED, fd, 0);
}

static int real_munmap(void *address, size_t length) { return munmap(address, length); }

static int real_fstat(int fd, int64_t *size_bytes, int64_t *modified_ms,
                      uint64_t *file_number) {
    struct stat status;
    if (fstat(fd, &status) != 0) {
        return -1;
    }
    if (!S_ISREG(status.st_mode)) {
        errno = S_ISDIR(status.st_mode) ? EISDIR : ENXIO;
        return -1;
    }
    *size_bytes = status.st_size;
    *modified_ms = (int64_t)status.st_mtim.tv_sec * 1000 + status.st_mtim.tv_nsec / 1000000;
    *file_number = status.st_ino;
    return 0;
}

static int real_fdatasync(int fd) { return fdatasync(fd); }

static int real_ftruncate(int fd, int64_t size_bytes) { return ftruncate(fd, size_bytes); }

static int real_mkdir(const char *path, int mode) { return mkdir(path, (mode_t)mode); }

static int real_rename(const char *from, const char *to) { return rename(from, to); }

static int real_unlink(const char *path) { return unlink(path); }

static int real_rmdir(const char *path) { return rmdir(path); }

static int real_flock(int fd, int operation) { return flock(fd, operation); }

static int real_fsync_dir(const char *path) {
    int fd = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (fd < 0) {
        return -1;
    }
    int outcome = fsync(fd);
    int cause = errno;
    close(fd);
    errno = cause;
    return outcome;
}

const replog_system_calls replog_real_system_calls = {
    .open = real_open,
    .close = real_close,
    .pwritev = real_pwritev,
    .pread = real_pread,
    .mmap = real_mmap,
    .munmap = real_munmap,
    .fstat = real_fstat,
    .fdatasync = real_fdatasync,
    .ftruncate = real_ftruncate,
    .mkdir = real_mkdir,
    .rename = real_rename,
    .unlink = real_unlink,
    .rmdir = real_rmdir,
    .flock = real_flock,
    .fsync_dir = real_fsync_dir,
};

enum { LOCKS_MAX = 4096 };

int replog_fork_generation = 0;
static int lock_fds[LOCKS_MAX];
static int lock_count = 0;

static void after_fork_in_child(void) {
    replog_fork_generation++;
    for (int place = 0; place < lock_count; place++) {
        close(lock_fds[place]);
    }
    lock_count = 0;
}

int64_t replog_descriptor_limit(void) {
    struct rlimit limit;
    if (getrlimit(RLIMIT_NOFILE, &limit) != 0 || limit.rlim_cur > INT32_MAX) {
        return INT32_MAX;
    }
    return (int64_t)limit.rlim_cur;
}

int replog_watch_forks(void) { return pthread_atfork(NULL, NULL, after_fork_in_child); }

int replog_close_in_children(int fd) {
    if (lock_count == LOCKS_MAX) {
        return -1;
    }
    lock_fds[lock_count++] = fd;
    return 0;
}

void replog_keep_in_children(int fd) {
    for (int place = 0; place < lock_count; place++) {
        if (lock_fds[place] == fd) {
            lock_fds[place] = lock_fds[--lock_count];
            return;
        }
    }
}
