/* jpeg_memory.c: see jpeg_memory.h. */
#include "image/jpeg_memory.h"

#include <jerror.h>
#include <stdbool.h>
#include <string.h>

/* The coefficients of one component of a progressive picture. libjpeg names the type only. */
struct jvirt_barray_control {
    JBLOCKARRAY rows;
    JDIMENSION blocks_per_row;
    JDIMENSION row_count;
    JDIMENSION first_undefined; /* rows from here on hold nothing yet */
    bool pre_zero;
};

static void *take(j_common_ptr info, size_t bytes) {
    void *at = lm_bump_alloc(info->client_data, bytes);
    if (!at) ERREXIT1(info, JERR_OUT_OF_MEMORY, 0);
    return at;
}

static void *alloc_object(j_common_ptr info, int pool, size_t bytes) {
    (void)pool;
    return take(info, bytes);
}

/* Rows begin at multiples of LM_BUMP_ALIGN, where SIMD code wants them. The sides of a picture
 * have 16 bits, so that no size here can wrap around. */
static JSAMPARRAY alloc_sample_rows(j_common_ptr info, int pool, JDIMENSION samples,
                                    JDIMENSION count) {
    (void)pool;
    size_t row_bytes = lm_align_up(samples * sizeof(JSAMPLE), LM_BUMP_ALIGN);
    JSAMPARRAY rows = take(info, count * sizeof *rows);
    JSAMPROW at = take(info, row_bytes * count);
    for (JDIMENSION i = 0; i < count; i++) rows[i] = at + row_bytes * i;
    return rows;
}

static JBLOCKARRAY alloc_block_rows(j_common_ptr info, int pool, JDIMENSION blocks,
                                    JDIMENSION count) {
    (void)pool;
    JBLOCKARRAY rows = take(info, count * sizeof *rows);
    JBLOCKROW at = take(info, (size_t)blocks * count * sizeof *at);
    for (JDIMENSION i = 0; i < count; i++) rows[i] = at + (size_t)blocks * i;
    return rows;
}

static jvirt_barray_ptr request_blocks(j_common_ptr info, int pool, boolean pre_zero,
                                       JDIMENSION blocks, JDIMENSION count, JDIMENSION max_access) {
    (void)max_access;
    jvirt_barray_ptr whole = take(info, sizeof *whole);
    *whole = (struct jvirt_barray_control){.rows = alloc_block_rows(info, pool, blocks, count),
                                           .blocks_per_row = blocks,
                                           .row_count = count,
                                           .pre_zero = pre_zero};
    return whole;
}

/* All is there already. */
static void realize(j_common_ptr info) {
    (void)info;
}

static JBLOCKARRAY access_blocks(j_common_ptr info, jvirt_barray_ptr whole, JDIMENSION first,
                                 JDIMENSION count, boolean writable) {
    JDIMENSION end = first + count;
    if (end < first || end > whole->row_count) ERREXIT(info, JERR_BAD_VIRTUAL_ACCESS);
    if (end > whole->first_undefined) {
        if (!whole->pre_zero && (!writable || first > whole->first_undefined))
            ERREXIT(info, JERR_BAD_VIRTUAL_ACCESS);
        /* Row by row as they come: a slice of the picture does not pay for all of it. */
        for (JDIMENSION i = whole->first_undefined; whole->pre_zero && i < end; i++)
            memset(whole->rows[i], 0, whole->blocks_per_row * sizeof(JBLOCK));
        whole->first_undefined = end;
    }
    return whole->rows + first;
}

/* Sample rows of a whole picture are for pictures with a palette of libjpeg's making. */
static jvirt_sarray_ptr no_samples(j_common_ptr info, int pool, boolean pre_zero,
                                   JDIMENSION samples, JDIMENSION count, JDIMENSION max_access) {
    (void)pool, (void)pre_zero, (void)samples, (void)count, (void)max_access;
    ERREXIT(info, JERR_NOT_COMPILED);
    return NULL;
}

static JSAMPARRAY no_access(j_common_ptr info, jvirt_sarray_ptr whole, JDIMENSION first,
                            JDIMENSION count, boolean writable) {
    (void)whole, (void)first, (void)count, (void)writable;
    ERREXIT(info, JERR_NOT_COMPILED);
    return NULL;
}

static void free_nothing(j_common_ptr info, int pool) {
    (void)info, (void)pool;
}

void lm_jpeg_memory_set(struct jpeg_decompress_struct *info) {
    struct jpeg_memory_mgr *memory = info->mem;
    memory->alloc_small = alloc_object;
    memory->alloc_large = alloc_object;
    memory->alloc_sarray = alloc_sample_rows;
    memory->alloc_barray = alloc_block_rows;
    memory->request_virt_sarray = no_samples;
    memory->request_virt_barray = request_blocks;
    memory->realize_virt_arrays = realize;
    memory->access_virt_sarray = no_access;
    memory->access_virt_barray = access_blocks;
    memory->free_pool = free_nothing;
}
