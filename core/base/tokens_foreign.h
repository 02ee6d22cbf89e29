/**
 * @file tokens_foreign.h
 * Token files of other programs, mapped unchanged; they do not contain the text of their tokens.
 * Internal to core/.
 *
 * Megatron-LM (megatron/core/datasets/indexed_dataset.py): NAME.bin has the tokens, document after
 * document, NAME.idx "MMIDIDX\0\0", uint64 1, uint8 type (1 uint8, 4 int32, 8 uint16), uint64
 * sequences, uint64 documents, int32 length and int64 place in NAME.bin of each sequence, int64
 * first sequence of each document.
 *
 * llm.c (dev/data/data_common.py): 256 int32, beginning with 20240520, 1 and the number of uint16
 * tokens after them, or 20240801, 7 and the number of uint32.
 */
#ifndef TY_TOKENS_FOREIGN_H
#define TY_TOKENS_FOREIGN_H

#include "tokens.h"

/** Whether a file has one of these formats; for Megatron-LM, whether its index is next to it. */
bool ty_tokens_is_foreign(const char *path);
/** Reads the header or the index, and checks it against the size of the tokens' file.
 * @param path   [out] of that file; free with ty_free
 * @param start [out] offset of the tokens in it
 * @param tokens [out] `token_bytes` and `count` */
ty_status ty_tokens_foreign_read(const char *given, char **path, uint64_t *start, ty_tokens *tokens,
                                 ty_error *error) TY_MUST_CHECK;

#endif
