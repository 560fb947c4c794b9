#define _GNU_SOURCE
#include "record_columns_blocks.h"

#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#define SLOTS 96
#define MAPPED_FROM (1LL << 20)
#define HUGE_PAGE (2LL << 20)
#define PAGE 4096LL
#define ZEROS_BYTES (64LL << 20)

static atomic_flag taken = ATOMIC_FLAG_INIT;
static replog_block kept[SLOTS]; /* in the order of their release */
static int kept_count;
static int64_t kept_bytes;

static int try_list(void)
{
    return !atomic_flag_test_and_set_explicit(&taken, memory_order_acquire);
}

static void leave_list(void) { atomic_flag_clear_explicit(&taken, memory_order_release); }

static void free_outright(replog_block block)
{
    if (block.capacity >= MAPPED_FROM)
        munmap(block.at, (size_t)block.capacity);
    else
        free(block.at);
}

static replog_block remove_kept(int slot)
{
    replog_block block = kept[slot];
    kept_count--;
    kept_bytes -= block.capacity;
    memmove(kept + slot, kept + slot + 1, (size_t)(kept_count - slot) * sizeof *kept);
    return block;
}

/* The smallest kept block that holds `wanted` and wastes at most as much again. */
static int find_kept(int64_t wanted, replog_block *found)
{
    int best = -1;
    if (!try_list())
        return 0;
    for (int slot = kept_count - 1; slot >= 0; slot--) {
        int64_t capacity = kept[slot].capacity;
        if (capacity < wanted || capacity / 2 > wanted + PAGE)
            continue;
        if (best < 0 || capacity < kept[best].capacity)
            best = slot;
    }
    if (best >= 0)
        *found = remove_kept(best);
    leave_list();
    return best >= 0;
}

static int allocate(int64_t wanted, replog_block *found)
{
    if (wanted > INT64_MAX - HUGE_PAGE)
        return -1;
    wanted = (wanted + PAGE - 1) / PAGE * PAGE;
    if (find_kept(wanted, found))
        return 0;
    if (wanted >= MAPPED_FROM) {
        void *at = mmap(NULL, (size_t)wanted, PROT_READ | PROT_WRITE,
                        MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
        if (at == MAP_FAILED)
            return -1;
        madvise(at, (size_t)wanted, MADV_HUGEPAGE); /* an offer only: failure costs speed */
        found->at = at;
    } else {
        found->at = malloc((size_t)wanted);
        if (!found->at)
            return -1;
    }
    found->capacity = wanted;
    return 0;
}

int replog_block_reserve(replog_block *block, int64_t wanted, int64_t used)
{
    replog_block grown;
    if (wanted <= block->capacity)
        return 0;
    /* At least by half, so that growing step by step stays linear. */
    if (block->at && wanted < block->capacity + block->capacity / 2)
        wanted = block->capacity + block->capacity / 2;
    if (block->capacity >= MAPPED_FROM) {
        void *at;
        if (wanted > INT64_MAX - HUGE_PAGE)
            return -1;
        wanted = (wanted + PAGE - 1) / PAGE * PAGE;
        at = mremap(block->at, (size_t)block->capacity, (size_t)wanted, MREMAP_MAYMOVE);
        if (at == MAP_FAILED)
            return -1;
        block->at = at;
        block->capacity = wanted;
        return 0;
    }
    if (allocate(wanted, &grown))
        return -1;
    if (used > block->capacity)
        used = block->capacity;
    if (used > 0)
        memcpy(grown.at, block->at, (size_t)used);
    replog_block_release(block);
    *block = grown;
    return 0;
}

void replog_block_release(replog_block *block)
{
    replog_block released = *block;
    int64_t smaller = 0;
    block->at = NULL;
    block->capacity = 0;
    if (!released.at)
        return;
    if (released.capacity > REPLOG_BLOCKS_KEPT_BYTES || !try_list()) {
        free_outright(released);
        return;
    }
    /* Room is made at the cost of smaller blocks only, oldest first: the big ones are dear to fault
       in again, and a stream of small ones must not push them out. */
    if (kept_bytes + released.capacity > REPLOG_BLOCKS_KEPT_BYTES) {
        for (int slot = 0; slot < kept_count; slot++)
            if (kept[slot].capacity < released.capacity)
                smaller += kept[slot].capacity;
    }
    if (kept_bytes - smaller + released.capacity <= REPLOG_BLOCKS_KEPT_BYTES) {
        int slot = 0;
        while (kept_bytes + released.capacity > REPLOG_BLOCKS_KEPT_BYTES) {
            if (kept[slot].capacity < released.capacity)
                free_outright(remove_kept(slot));
            else
                slot++;
        }
        if (kept_count == SLOTS)
            free_outright(remove_kept(0));
        kept[kept_count++] = released;
        kept_bytes += released.capacity;
        released.at = NULL;
    }
    leave_list();
    if (released.at)
        free_outright(released);
}

int64_t replog_blocks_kept(void)
{
    int64_t bytes = -1;
    if (try_list()) {
        bytes = kept_bytes;
        leave_list();
    }
    return bytes;
}

void replog_blocks_drop(void)
{
    if (!try_list())
        return;
    while (kept_count)
        free_outright(remove_kept(kept_count - 1));
    leave_list();
}

const void *replog_zeros(int64_t length)
{
    static _Atomic(void *) zeros;
    void *at = atomic_load(&zeros);
    if (length > ZEROS_BYTES)
        return NULL;
    if (!at) {
        void *expected = NULL;
        at = mmap(NULL, (size_t)ZEROS_BYTES, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE,
                  -1, 0);
        if (at == MAP_FAILED)
            return NULL;
        if (!atomic_compare_exchange_strong(&zeros, &expected, at)) {
            munmap(at, (size_t)ZEROS_BYTES);
            at = expected;
        }
    }
    return at;
}
