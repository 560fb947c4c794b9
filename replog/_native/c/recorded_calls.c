#define _GNU_SOURCE
#include "recorded_calls.h"

#include <errno.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>

enum { FDS_MAX = 65536 };

static pthread_mutex_t guard = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t held_changed = PTHREAD_COND_INITIALIZER;
static pthread_cond_t gate_opened = PTHREAD_COND_INITIALIZER;
static int64_t gate_openings;
static int64_t held_count;
static const replog_system_calls *under;
static int64_t counts[CALL_KINDS];
static replog_fault faults[FAULTS_MAX];
static int fault_count;
static replog_strike strikes[STRIKES_KEPT_MAX];
static size_t strike_count;
static int keeping;
static replog_recorded_call *kept;
static size_t kept_count;
static size_t kept_room;
static char *path_of_fd[FDS_MAX];

/* The same one again and again, as of a disk that is full, is kept once. */
static void note_strike(int kind, const char *path, int cause) {
    const replog_strike *last = &strikes[strike_count ? strike_count - 1 : 0];
    if (strike_count && strike_count <= STRIKES_KEPT_MAX && last->kind == kind &&
        last->cause == cause && strcmp(last->path, path ? path : "") == 0) {
        return;
    }
    if (strike_count < STRIKES_KEPT_MAX) {
        replog_strike *struck = &strikes[strike_count];
        struck->kind = kind;
        struck->cause = cause;
        snprintf(struck->path, sizeof struck->path, "%s", path ? path : "");
    }
    strike_count++;
}

/* Counts the call; returns the errno it must fail with, or 0. A short one lowers *bytes_max; a held
 * one waits here, with nothing done yet. */
static int strike(int kind, const char *path, size_t *bytes_max) {
    int cause = 0;
    int held = 0;
    pthread_mutex_lock(&guard);
    counts[kind]++;
    for (int number = 0; number < fault_count; number++) {
        replog_fault *fault = &faults[number];
        if (fault->kind != kind || (fault->path[0] && !(path && strstr(path, fault->path)))) {
            continue;
        }
        fault->seen++;
        if (fault->seen < fault->nth || fault->seen >= fault->nth + fault->times) {
            continue;
        }
        if (fault->hold) {
            held = 1;
        } else if (fault->cause) {
            cause = fault->cause;
            note_strike(kind, path, cause);
        } else if (bytes_max && *bytes_max > fault->bytes_max) {
            *bytes_max = fault->bytes_max;
            note_strike(kind, path, 0);
        }
    }
    if (held) {
        held_count++;
        pthread_cond_broadcast(&held_changed);
        for (int64_t since = gate_openings; since == gate_openings;) {
            pthread_cond_wait(&gate_opened, &guard);
        }
        held_count--;
    }
    pthread_mutex_unlock(&guard);
    return cause;
}

static const char *path_behind(int fd) {
    return fd >= 0 && fd < FDS_MAX ? path_of_fd[fd] : NULL;
}

/* A test that runs out of memory here would judge a trace with holes, so it stops instead. */
static void *owned(void *memory) {
    if (memory == NULL) {
        abort();
    }
    return memory;
}

static replog_recorded_call *keep(int kind, int fd, const char *path) {
    if (kept_count == kept_room) {
        kept_room = kept_room ? 2 * kept_room : 1024;
        kept = owned(realloc(kept, kept_room * sizeof *kept));
    }
    replog_recorded_call *call = &kept[kept_count++];
    memset(call, 0, sizeof *call);
    call->kind = kind;
    call->fd = fd;
    call->path = path ? owned(strdup(path)) : NULL;
    return call;
}

static void keep_plain(int kind, int fd, const char *path, int64_t position, const char *to) {
    int cause = errno;
    pthread_mutex_lock(&guard);
    if (keeping) {
        replog_recorded_call *call = keep(kind, fd, path);
        call->position = position;
        call->to = to ? owned(strdup(to)) : NULL;
    }
    pthread_mutex_unlock(&guard);
    errno = cause;
}

static int failing(int cause) {
    errno = cause;
    return -1;
}

static int recorded_open(const char *path, int flags, int mode) {
    int cause = strike(CALL_OPEN, path, NULL);
    if (cause) {
        return failing(cause);
    }
    int fd = under->open(path, flags, mode);
    if (fd < 0) {
        return fd;
    }
    pthread_mutex_lock(&guard);
    if (fd < FDS_MAX) {
        free(path_of_fd[fd]);
        path_of_fd[fd] = owned(strdup(path));
    }
    if (keeping) {
        keep(CALL_OPEN, fd, path)->flags = flags;
    }
    pthread_mutex_unlock(&guard);
    return fd;
}

static int recorded_close(int fd) {
    strike(CALL_CLOSE, path_behind(fd), NULL);
    keep_plain(CALL_CLOSE, fd, NULL, 0, NULL);
    return under->close(fd);
}

/* Write at most bytes_max bytes of the parts: a copy of the array, with its tail cut. */
static ssize_t write_some(int fd, const struct iovec *parts, int part_count, int64_t position,
                          size_t bytes_max) {
    struct iovec *cut = owned(malloc((size_t)part_count * sizeof *cut));
    int used = 0;
    for (; used < part_count && bytes_max > 0; used++) {
        cut[used] = parts[used];
        if (cut[used].iov_len > bytes_max) {
            cut[used].iov_len = bytes_max;
        }
        bytes_max -= cut[used].iov_len;
    }
    ssize_t written = used ? under->pwritev(fd, cut, used, position) : 0;
    int cause = errno;
    free(cut);
    errno = cause;
    return written;
}

static void keep_bytes(int fd, const struct iovec *parts, int64_t position, size_t length) {
    pthread_mutex_lock(&guard);
    if (keeping) {
        replog_recorded_call *call = keep(CALL_PWRITEV, fd, path_behind(fd));
        call->position = position;
        call->length = length;
        call->bytes = owned(malloc(length ? length : 1));
        for (size_t at = 0; at < length; parts++) {
            size_t piece = parts->iov_len < length - at ? parts->iov_len : length - at;
            memcpy(call->bytes + at, parts->iov_base, piece);
            at += piece;
        }
    }
    pthread_mutex_unlock(&guard);
}

static ssize_t recorded_pwritev(int fd, const struct iovec *parts, int part_count,
                                int64_t position) {
    size_t bytes_max = SIZE_MAX;
    int cause = strike(CALL_PWRITEV, path_behind(fd), &bytes_max);
    if (cause) {
        return failing(cause);
    }
    ssize_t written = bytes_max == SIZE_MAX
                          ? under->pwritev(fd, parts, part_count, position)
                          : write_some(fd, parts, part_count, position, bytes_max);
    if (written > 0) {
        keep_bytes(fd, parts, position, (size_t)written);
    }
    return written;
}

static ssize_t recorded_pread(int fd, void *into, size_t length, int64_t position) {
    int cause = strike(CALL_PREAD, path_behind(fd), &length);
    return cause ? failing(cause) : under->pread(fd, into, length, position);
}

static void *recorded_mmap(int fd, size_t length) {
    int cause = strike(CALL_MMAP, path_behind(fd), NULL);
    if (cause) {
        errno = cause;
        return MAP_FAILED;
    }
    return under->mmap(fd, length);
}

static int recorded_munmap(void *address, size_t length) {
    strike(CALL_MUNMAP, NULL, NULL);
    return under->munmap(address, length);
}

static int recorded_fstat(int fd, int64_t *size_bytes, int64_t *modified_ms,
                          uint64_t *file_number) {
    int cause = strike(CALL_FSTAT, path_behind(fd), NULL);
    return cause ? failing(cause) : under->fstat(fd, size_bytes, modified_ms, file_number);
}

static int recorded_fdatasync(int fd) {
    int cause = strike(CALL_FDATASYNC, path_behind(fd), NULL);
    int outcome = cause ? failing(cause) : under->fdatasync(fd);
    if (outcome == 0) {
        keep_plain(CALL_FDATASYNC, fd, path_behind(fd), 0, NULL);
    }
    return outcome;
}

static int recorded_ftruncate(int fd, int64_t size_bytes) {
    int cause = strike(CALL_FTRUNCATE, path_behind(fd), NULL);
    int outcome = cause ? failing(cause) : under->ftruncate(fd, size_bytes);
    if (outcome == 0) {
        keep_plain(CALL_FTRUNCATE, fd, path_behind(fd), size_bytes, NULL);
    }
    return outcome;
}

static int recorded_mkdir(const char *path, int mode) {
    int cause = strike(CALL_MKDIR, path, NULL);
    int outcome = cause ? failing(cause) : under->mkdir(path, mode);
    if (outcome == 0) {
        keep_plain(CALL_MKDIR, -1, path, 0, NULL);
    }
    return outcome;
}

static int recorded_rename(const char *from, const char *to) {
    int cause = strike(CALL_RENAME, from, NULL);
    int outcome = cause ? failing(cause) : under->rename(from, to);
    if (outcome == 0) {
        keep_plain(CALL_RENAME, -1, from, 0, to);
    }
    return outcome;
}

static int recorded_unlink(const char *path) {
    int cause = strike(CALL_UNLINK, path, NULL);
    int outcome = cause ? failing(cause) : under->unlink(path);
    if (outcome == 0) {
        keep_plain(CALL_UNLINK, -1, path, 0, NULL);
    }
    return outcome;
}

static int recorded_rmdir(const char *path) {
    int cause = strike(CALL_RMDIR, path, NULL);
    int outcome = cause ? failing(cause) : under->rmdir(path);
    if (outcome == 0) {
        keep_plain(CALL_RMDIR, -1, path, 0, NULL);
    }
    return outcome;
}

static int recorded_flock(int fd, int operation) {
    int cause = strike(CALL_FLOCK, path_behind(fd), NULL);
    return cause ? failing(cause) : under->flock(fd, operation);
}

static int recorded_fsync_dir(const char *path) {
    int cause = strike(CALL_FSYNC_DIR, path, NULL);
    int outcome = cause ? failing(cause) : under->fsync_dir(path);
    if (outcome == 0) {
        keep_plain(CALL_FSYNC_DIR, -1, path, 0, NULL);
    }
    return outcome;
}

const replog_system_calls replog_recording_system_calls = {
    .open = recorded_open,
    .close = recorded_close,
    .pwritev = recorded_pwritev,
    .pread = recorded_pread,
    .mmap = recorded_mmap,
    .munmap = recorded_munmap,
    .fstat = recorded_fstat,
    .fdatasync = recorded_fdatasync,
    .ftruncate = recorded_ftruncate,
    .mkdir = recorded_mkdir,
    .rename = recorded_rename,
    .unlink = recorded_unlink,
    .rmdir = recorded_rmdir,
    .flock = recorded_flock,
    .fsync_dir = recorded_fsync_dir,
};

void replog_recording_start(const replog_system_calls *below) {
    under = below;
    memset(counts, 0, sizeof counts);
    replog_clear_faults();
    replog_keep_calls(0);
    replog_drop_calls();
}

int64_t replog_call_count(int kind) { return counts[kind]; }

int replog_add_fault(const replog_fault *fault) {
    pthread_mutex_lock(&guard);
    int outcome = -1;
    if (fault_count < FAULTS_MAX) {
        faults[fault_count++] = *fault;
        outcome = 0;
    }
    pthread_mutex_unlock(&guard);
    return outcome;
}

void replog_clear_faults(void) {
    pthread_mutex_lock(&guard);
    fault_count = 0;
    strike_count = 0;
    gate_openings++;
    pthread_cond_broadcast(&gate_opened);
    pthread_mutex_unlock(&guard);
}

int replog_wait_until_held(int64_t count, double seconds) {
    struct timespec until;
    clock_gettime(CLOCK_REALTIME, &until);
    until.tv_sec += (time_t)seconds;
    until.tv_nsec += (long)((seconds - (double)(time_t)seconds) * 1e9);
    if (until.tv_nsec >= 1000000000) {
        until.tv_sec++;
        until.tv_nsec -= 1000000000;
    }
    int outcome = 0;
    pthread_mutex_lock(&guard);
    while (held_count < count && outcome == 0) {
        outcome = pthread_cond_timedwait(&held_changed, &guard, &until);
    }
    pthread_mutex_unlock(&guard);
    return outcome;
}

size_t replog_strike_count(void) { return strike_count; }

const replog_strike *replog_kept_strike(size_t number) { return &strikes[number]; }

void replog_keep_calls(int wanted) { keeping = wanted; }

int replog_add_mark(const char *text) {
    keep_plain(CALL_MARK, -1, text, 0, NULL);
    return 0;
}

size_t replog_kept_count(void) { return kept_count; }

const replog_recorded_call *replog_kept_call(size_t number) { return &kept[number]; }

void replog_drop_calls(void) {
    pthread_mutex_lock(&guard);
    for (size_t number = 0; number < kept_count; number++) {
        free(kept[number].bytes);
        free(kept[number].path);
        free(kept[number].to);
    }
    kept_count = 0;
    pthread_mutex_unlock(&guard);
}
