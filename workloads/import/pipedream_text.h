/* Pieces of lines of PipeDream's profiles. */
#ifndef TY_PIPEDREAM_TEXT_H
#define TY_PIPEDREAM_TEXT_H

#include <stdbool.h>
#include <stddef.h>
#include <string.h>

typedef struct piece { /* of a line */
    const char *at, *end;
} piece;

static inline bool ty_piece_starts_with(piece text, const char *word)
{
    size_t length = strlen(word);
    return (size_t)(text.end - text.at) >= length && memcmp(text.at, word, length) == 0;
}

/** Whether bytes look like a profile. */
bool ty_pipedream_probe(const char *bytes, size_t length);

#endif
