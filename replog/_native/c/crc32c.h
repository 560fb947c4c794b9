/* CRC-32C (Castagnoli, reflected, polynomial 0x1EDC6F41) by the fastest way this processor has.
 *
 * All three ways give the same number for the same bytes; replog_crc32c_use() picks one, and the
 * choice stands for the process. Nothing here allocates, fails or reads outside bytes[0:length).
 */
#ifndef REPLOG_CRC32C_H
#define REPLOG_CRC32C_H

#include <stddef.h>
#include <stdint.h>

typedef enum replog_crc32c_way {
    REPLOG_CRC32C_PORTABLE = 0,   /* slicing by 8: any processor */
    REPLOG_CRC32C_SSE42 = 1,      /* crc32 instruction, three streams, joined by PCLMULQDQ */
    REPLOG_CRC32C_VPCLMULQDQ = 2, /* AVX-512 folding, last step by the crc32 instruction */
} replog_crc32c_way;

/* Fills the tables and picks the best way. Call once, before any other function here. */
void replog_crc32c_start(void);

/* Continues `crc` (0 to start) over bytes[0:length). */
uint32_t replog_crc32c(uint32_t crc, const uint8_t *bytes, size_t length);

/* 1 where this processor can do it, else 0. */
int replog_crc32c_has(replog_crc32c_way way);

/* Picks a way that replog_crc32c_has(). Not while another thread computes. */
void replog_crc32c_use(replog_crc32c_way way);

replog_crc32c_way replog_crc32c_used(void);

#endif
