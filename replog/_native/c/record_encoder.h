/* Rows of Arrow, numpy or Python columns, written as the records of a batch.
 *
 * A record, lengths and counts as zigzag varints:
 *   length | attributes 00 | timestamp delta | offset delta | key length, key |
 *   value length, value | header count, (key length, key, value length, value)*
 * A length of -1 stands for null.
 *
 * Nothing here allocates or needs the GIL. Every place that a column names is held against the
 * length of its buffer, each time it is read: another thread may be writing to it.
 */
#ifndef REPLOG_RECORD_ENCODER_H
#define REPLOG_RECORD_ENCODER_H

#include <stdint.h>

typedef enum replog_column_kind {
    REPLOG_COLUMN_NULLS = 0,     /* every row is null */
    REPLOG_COLUMN_OFFSETS32 = 1, /* Arrow binary, string */
    REPLOG_COLUMN_OFFSETS64 = 2, /* Arrow large_binary, large_string */
    REPLOG_COLUMN_FIXED = 3,     /* width bytes a row */
    REPLOG_COLUMN_STRIPPED = 4,  /* the same without the zeros at the end: numpy's S type */
    REPLOG_COLUMN_VIEWS = 5,     /* Arrow binary_view, string_view */
    REPLOG_COLUMN_SLICES = 6,    /* one replog_slice a row */
} replog_column_kind;

typedef struct replog_slice {
    const uint8_t *bytes;
    int64_t length; /* -1: null */
} replog_slice;

typedef struct replog_column {
    int kind;
    const uint8_t *validity; /* one bit a row, NULL where no row is null */
    int64_t first;           /* place of row 0 in validity, offsets, views and fixed bytes */
    const void *places;      /* offsets or views: checked to hold first + rows (+ 1) entries */
    const uint8_t *bytes;
    int64_t bytes_length;
    int64_t width;
    const replog_slice *slices; /* of rows, or the buffers that views point into */
    int64_t slice_count;
} replog_column;

typedef struct replog_rows {
    int64_t count;
    replog_column values;
    replog_column keys;
    const int64_t *timestamps;    /* NULL: every row has `timestamp` */
    int64_t timestamp;            /* ms */
    const int64_t *header_ranges; /* [begin, end) in the header columns for each row; NULL: none */
    int64_t header_count;         /* rows of the header columns */
    replog_column header_keys;
    replog_column header_values;
} replog_rows;

enum {
    REPLOG_BAD_PLACE = -1,     /* a column points outside its buffers */
    REPLOG_BAD_LENGTH = -2,    /* a record is longer than 2^31 - 1 bytes */
    REPLOG_BAD_TIMESTAMP = -3, /* below -1 */
    REPLOG_BAD_HEADER_KEY = -4 /* null */
};

typedef struct replog_extent {
    int64_t row_count;
    int64_t bytes;         /* of these rows as records */
    int64_t max_timestamp; /* ms */
    int64_t bad_row;       /* where the size came out as an error */
} replog_extent;

/* Rows from `start` on that make at most bytes_max bytes of records, but at least one row.
 * 0, or one of REPLOG_BAD_*. */
int replog_size_records(const replog_rows *rows, int64_t start, int64_t bytes_max,
                        replog_extent *extent);

/* Writes rows [start, start + count) to out[0:length), offset deltas from 0. 0 if they fill it
 * exactly; REPLOG_BAD_* if a column has changed since it was sized. */
int replog_write_records(const replog_rows *rows, int64_t start, int64_t count, uint8_t *out,
                         int64_t length);

typedef struct replog_renumbering {
    int64_t bytes;      /* of the records once re-numbered */
    int64_t base_shift; /* timestamp delta of the first record, which becomes the base */
    int changed;        /* 0: the records are as they must be already */
} replog_renumbering;

/* The records in at[0:length) (one batch's, uncompressed) with offset deltas 0, 1, 2, ... and
 * timestamp deltas from the first record's. With out, writes them to out[0:out_length).
 * 0, or REPLOG_BAD_PLACE if the bytes are not exactly `count` records or do not fit. */
int replog_renumber_records(const uint8_t *at, int64_t length, int64_t count, uint8_t *out,
                            int64_t out_length, replog_renumbering *renumbering);

#endif
