/**
 * @file tokens_foreign.h
 * Tokens that other programs wrote, which are mapped as they are; what their tokens stand for is
 * not in them. Internal to core/.
 *
 * Megatron-LM (megatron/core/datasets/indexed_dataset.py): NAME.bin has the tokens, document behind
 * document, NAME.idx "MMIDIDX\0\0", uint64 1, uint8 type (1 uint8, 4 int32, 8 uint16), uint64
 * sequences, uint64 documents, int32 length and int64 place in NAME.bin of each sequence, int64
 * first sequence of each document.
 *
 * llm.c (dev/data/data_common.py): 256 int32, of which the first three are 20240520, 1 and how many
 * uint16 tokens follow, or 20240801, 7 and how many uint32.
 */
#ifndef TY_TOKENS_FOREIGN_H
#define TY_TOKENS_FOREIGN_H

#include "tokens.h"

/** Whether a file is one of these, or for Megatron-LM lies beside its index. */
bool ty_tokens_is_foreign(const char *path);
/** What the file or its index says, checked against the size of the tokens' file.
 * @param path   [out] of that file; free with ty_free
 * @param start  [out] where the tokens begin in it
 * @param tokens [out] `token_bytes` and `count` */
ty_status ty_tokens_foreign_read(const char *given, char **path, uint64_t *start, ty_tokens *tokens,
                                 ty_error *error) TY_MUST_CHECK;

#endif
