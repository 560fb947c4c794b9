/* Memory for decoded columns, recycled: fresh pages cost ten times what a copy into warm ones does.
 *
 * A process-wide free list keeps at most REPLOG_BLOCKS_KEPT_BYTES of released blocks. Blocks of
 * 1 MiB and more are mappings that ask for huge pages and grow in place; smaller ones come from
 * malloc. Any thread may call, with or without the GIL. Nobody ever waits: where the list is taken
 * (also by a thread that a fork left behind), memory is allocated or freed outright.
 */
#ifndef REPLOG_RECORD_COLUMNS_BLOCKS_H
#define REPLOG_RECORD_COLUMNS_BLOCKS_H

#include <stdint.h>

#define REPLOG_BLOCKS_KEPT_BYTES (64LL << 20)

typedef struct {
    uint8_t *at;      /* NULL: nothing yet */
    int64_t capacity; /* bytes */
} replog_block;

/* Make room for `wanted` bytes; the first `used` stay. Returns 0, or -1 if there is no memory. */
int replog_block_reserve(replog_block *block, int64_t wanted, int64_t used);

/* Give the block back; it becomes empty. */
void replog_block_release(replog_block *block);

/* Bytes on the free list now. */
int64_t replog_blocks_kept(void);

/* Free what is on the list. */
void replog_blocks_drop(void);

/* Read-only zeros, `length` bytes of them, or NULL if that is more than there are. */
const void *replog_zeros(int64_t length);

#endif
