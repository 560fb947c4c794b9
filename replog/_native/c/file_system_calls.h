/* What file_system needs beside the table: which process a file belongs to.
 *
 * A child of fork() shares the parent's descriptors, so it must not write through them, and it must
 * not keep the parent's directory locks alive. Each fork raises replog_fork_generation in the
 * child. */
#ifndef REPLOG_FILE_SYSTEM_CALLS_H
#define REPLOG_FILE_SYSTEM_CALLS_H

#include <stdint.h>

extern int replog_fork_generation;

/* How many descriptors the process may have now. */
int64_t replog_descriptor_limit(void);

/* Install the fork handler; once a process. Returns 0 or an errno. */
int replog_watch_forks(void);
/* Close this descriptor in every child (a flock lives as long as any copy of its descriptor).
 * Returns -1 when more than 4096 are held. */
int replog_close_in_children(int fd);
void replog_keep_in_children(int fd);

#endif
