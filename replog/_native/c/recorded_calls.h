/* A table of system calls for tests: counts each call, fails or shortens chosen ones, and keeps
 * what changed the disk, in order. One process-wide instance, behind a mutex. */
#ifndef REPLOG_RECORDED_CALLS_H
#define REPLOG_RECORDED_CALLS_H

#include <stddef.h>
#include <stdint.h>

#include "system_calls.h"

enum replog_call_kind {
    CALL_OPEN,
    CALL_CLOSE,
    CALL_PWRITEV,
    CALL_PREAD,
    CALL_MMAP,
    CALL_MUNMAP,
    CALL_FSTAT,
    CALL_FDATASYNC,
    CALL_FTRUNCATE,
    CALL_MKDIR,
    CALL_RENAME,
    CALL_UNLINK,
    CALL_RMDIR,
    CALL_FLOCK,
    CALL_FSYNC_DIR,
    CALL_MARK, /* no call: a note of the test between two calls */
    CALL_KINDS
};

/* One call that succeeded and changed, or made durable, something on the disk. */
typedef struct replog_recorded_call {
    int kind;
    int fd;           /* -1 where the call takes a path */
    int flags;        /* of open */
    int64_t position; /* of pwritev; the size of ftruncate */
    size_t length;    /* bytes that pwritev took */
    uint8_t *bytes;
    char *path;
    char *to; /* of rename */
} replog_recorded_call;

/* What is to go wrong: the calls of `kind` on paths that contain `path`, from the `nth` of them
 * (counting from 1) on, `times` of them. Either they fail with `cause`, or (pwritev and pread,
 * cause 0) they take at most `bytes_max` bytes, or (hold) they wait until all is cleared. */
typedef struct replog_fault {
    int kind;
    int64_t nth;
    int64_t times;
    int cause;
    int hold;
    size_t bytes_max;
    char path[256]; /* empty: any */
    int64_t seen;
} replog_fault;

/* A call that a fault has hit; path is cut where it is longer. */
typedef struct replog_strike {
    int kind;
    int cause; /* 0: it was shortened */
    char path[256];
} replog_strike;

enum { FAULTS_MAX = 16, STRIKES_KEPT_MAX = 16 };

extern const replog_system_calls replog_recording_system_calls;

void replog_recording_start(const replog_system_calls *below);
int64_t replog_call_count(int kind);
/* Returns -1 when FAULTS_MAX are set. */
int replog_add_fault(const replog_fault *fault);
void replog_clear_faults(void);
/* 0 once `count` calls are held, an errno if that takes longer. */
int replog_wait_until_held(int64_t count, double seconds);
/* Calls hit since the faults were last cleared; the first STRIKES_KEPT_MAX of them are kept. */
size_t replog_strike_count(void);
const replog_strike *replog_kept_strike(size_t number);
void replog_keep_calls(int keep);
/* Returns -1 without memory. */
int replog_add_mark(const char *text);
size_t replog_kept_count(void);
const replog_recorded_call *replog_kept_call(size_t number);
void replog_drop_calls(void);

#endif
