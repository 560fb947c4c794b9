/* Every system call of the engine, as one table of functions, so that tests can count, fail, delay,
 * tear and record each one. The table in use is file_system.system_calls; nothing else of replog
 * opens, writes, maps, syncs, resizes or unlinks a file.
 *
 * Each entry returns what its namesake returns: -1 and errno on failure. EINTR is the caller's. */
#ifndef REPLOG_SYSTEM_CALLS_H
#define REPLOG_SYSTEM_CALLS_H

#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>
#include <sys/uio.h>

typedef struct replog_system_calls {
    int (*open)(const char *path, int flags, int mode);
    int (*close)(int fd);
    ssize_t (*pwritev)(int fd, const struct iovec *parts, int part_count, int64_t position);
    ssize_t (*pread)(int fd, void *into, size_t length, int64_t position);
    void *(*mmap)(int fd, size_t length); /* read-only, shared, from 0; MAP_FAILED on failure */
    int (*munmap)(void *address, size_t length);
    /* EISDIR or ENXIO for what is no regular file. file_number: the inode, same for one file. */
    int (*fstat)(int fd, int64_t *size_bytes, int64_t *modified_ms, uint64_t *file_number);
    int (*fdatasync)(int fd);
    int (*ftruncate)(int fd, int64_t size_bytes);
    int (*mkdir)(const char *path, int mode);
    int (*rename)(const char *from, const char *to);
    int (*unlink)(const char *path);
    int (*rmdir)(const char *path);
    int (*flock)(int fd, int operation);
    int (*fsync_dir)(const char *path);
} replog_system_calls;

extern const replog_system_calls replog_real_system_calls;

#endif
