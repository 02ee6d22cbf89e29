/* Learning byte pairs. It works on words: each different word is stored once, with its number of
 * occurrences, and rewritten as pairs become tokens; in the end the text is its words' tokens. */
#include "byte_pairs.h"

#include "ty_base.h"

#include <stdbool.h>
#include <string.h>

typedef struct word {
    uint64_t start; /* in `symbols`; merging shortens it in place */
    uint32_t length;
    uint64_t count;     /* occurrences */
    uint64_t text_at;   /* of the first one */
    uint32_t text_size; /* bytes */
} word;

typedef struct pair {
    uint32_t first, second;
    uint64_t count;
    uint32_t *words; /* words with the pair, now or earlier */
    uint32_t word_count, word_room;
} pair;

typedef struct wish { /* a pair with its count when it was put on the heap */
    uint64_t count;
    uint32_t pair;
} wish;

typedef struct table { /* open addressing; entries are index + 1 */
    uint32_t *entries;
    uint64_t size; /* a power of two */
} table;

typedef struct learning {
    const unsigned char *text;
    size_t length;
    uint32_t *symbols; /* [length] */
    word *words;
    uint32_t word_count, word_room;
    uint32_t *occurrences; /* [occurrence_count]: the text as words */
    uint64_t occurrence_count, occurrence_room;
    table word_table, pair_table;
    pair *pairs;
    uint32_t pair_count, pair_room;
    wish *heap;
    uint64_t heap_count, heap_room;
    bool has_failed; /* out of memory */
} learning;

/* ---- Growing arrays ------------------------------------------------------------------------ */

/* Reserves space for one more of `size` bytes; false and has_failed without memory. */
static bool reserve(learning *l, void **items, uint64_t count, uint64_t *room, size_t size)
{
    void *grown;

    if (count < *room)
        return true;
    grown = ty_resize(*items, *room == 0 ? 256 : *room * 2, size);
    if (grown == NULL) {
        l->has_failed = true;
        return false;
    }
    *items = grown;
    *room = *room == 0 ? 256 : *room * 2;
    return true;
}

static bool reserve_small(learning *l, void **items, uint32_t count, uint32_t *room, size_t size)
{
    uint64_t wide = *room;
    const bool is_there = reserve(l, items, count, &wide, size);

    *room = (uint32_t)wide;
    return is_there;
}

static uint64_t mix(uint64_t x)
{
    x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9u; /* the finaliser of SplitMix64 */
    x = (x ^ (x >> 27)) * 0x94d049bb133111ebu;
    return x ^ (x >> 31);
}

/* ---- Words ------------------------------------------------------------------------------- */

static bool is_space(unsigned char byte)
{
    return byte == ' ' || (byte >= '\t' && byte <= '\r');
}

static uint64_t hash_bytes(const unsigned char *bytes, uint64_t count)
{
    uint64_t hash = count;

    for (uint64_t i = 0; i < count; i++)
        hash = mix(hash ^ bytes[i]);
    return hash;
}

static uint64_t word_hash(const learning *l, uint32_t index)
{
    return hash_bytes(l->text + l->words[index].text_at, l->words[index].text_size);
}

static uint64_t pair_hash(uint32_t first, uint32_t second)
{
    return mix((uint64_t)first << 32 | second);
}

/* Doubles the table and inserts each entry again. */
static bool table_grow(learning *l, table *t, bool is_of_words, uint32_t count)
{
    const uint64_t size = t->size == 0 ? 1024 : t->size * 2;
    uint32_t *entries = ty_alloc(size, sizeof *entries);

    if (entries == NULL) {
        l->has_failed = true;
        return false;
    }
    for (uint32_t i = 0; i < count; i++) {
        uint64_t at =
            is_of_words ? word_hash(l, i) : pair_hash(l->pairs[i].first, l->pairs[i].second);
        for (at &= size - 1; entries[at] != 0; at = (at + 1) & (size - 1)) {
        }
        entries[at] = i + 1;
    }
    ty_free(t->entries);
    *t = (table){entries, size};
    return true;
}

static uint32_t word_find(learning *l, uint64_t start, uint32_t size)
{
    const uint64_t hash = hash_bytes(l->text + start, size);
    uint64_t at;

    if (l->word_table.size < 2 * ((uint64_t)l->word_count + 1) &&
        !table_grow(l, &l->word_table, true, l->word_count))
        return 0;
    for (at = hash & (l->word_table.size - 1); l->word_table.entries[at] != 0;
         at = (at + 1) & (l->word_table.size - 1)) {
        const word *known = &l->words[l->word_table.entries[at] - 1];
        if (known->text_size == size &&
            memcmp(l->text + known->text_at, l->text + start, size) == 0)
            return l->word_table.entries[at] - 1;
    }
    if (!reserve_small(l, (void **)&l->words, l->word_count, &l->word_room, sizeof *l->words))
        return 0;
    l->words[l->word_count] =
        (word){.start = start, .length = size, .text_at = start, .text_size = size};
    l->word_table.entries[at] = ++l->word_count;
    return l->word_count - 1;
}

/* A word begins at whitespace, and at the start. Words longer than in any language are cut. */
enum { LONGEST_WORD = 4096 };

static void words_find(learning *l)
{
    uint64_t start = 0;

    for (uint64_t i = 0; i < l->length; i++)
        l->symbols[i] = l->text[i];
    for (uint64_t i = 1; i <= l->length && !l->has_failed; i++) {
        uint32_t index;
        if (i < l->length && !is_space(l->text[i]) && i - start < LONGEST_WORD)
            continue;
        index = word_find(l, start, (uint32_t)(i - start));
        if (l->has_failed || !reserve(l, (void **)&l->occurrences, l->occurrence_count,
                                      &l->occurrence_room, sizeof *l->occurrences))
            return;
        l->words[index].count++;
        l->occurrences[l->occurrence_count++] = index;
        start = i;
    }
}

/* ---- Pairs ------------------------------------------------------------------------------- */

/* More frequent first, then the one of earlier tokens. */
static bool is_before(const learning *l, const wish *a, const wish *b)
{
    const pair *x = &l->pairs[a->pair], *y = &l->pairs[b->pair];

    if (a->count != b->count)
        return a->count > b->count;
    return x->first != y->first ? x->first < y->first : x->second < y->second;
}

static void heap_push(learning *l, uint32_t index)
{
    const wish made = {l->pairs[index].count, index};
    uint64_t at = l->heap_count;

    if (!reserve(l, (void **)&l->heap, l->heap_count, &l->heap_room, sizeof *l->heap))
        return;
    l->heap_count++;
    for (; at > 0 && is_before(l, &made, &l->heap[(at - 1) / 2]); at = (at - 1) / 2)
        l->heap[at] = l->heap[(at - 1) / 2];
    l->heap[at] = made;
}

static wish heap_pop(learning *l)
{
    const wish top = l->heap[0], last = l->heap[--l->heap_count];
    uint64_t at = 0, child;

    for (; (child = 2 * at + 1) < l->heap_count; at = child) {
        if (child + 1 < l->heap_count && is_before(l, &l->heap[child + 1], &l->heap[child]))
            child++;
        if (!is_before(l, &l->heap[child], &last))
            break;
        l->heap[at] = l->heap[child];
    }
    l->heap[at] = last;
    return top;
}

static uint32_t pair_find(learning *l, uint32_t first, uint32_t second)
{
    uint64_t at;

    if (l->pair_table.size < 2 * ((uint64_t)l->pair_count + 1) &&
        !table_grow(l, &l->pair_table, false, l->pair_count))
        return 0;
    for (at = pair_hash(first, second) & (l->pair_table.size - 1); l->pair_table.entries[at] != 0;
         at = (at + 1) & (l->pair_table.size - 1)) {
        const pair *known = &l->pairs[l->pair_table.entries[at] - 1];
        if (known->first == first && known->second == second)
            return l->pair_table.entries[at] - 1;
    }
    if (!reserve_small(l, (void **)&l->pairs, l->pair_count, &l->pair_room, sizeof *l->pairs))
        return 0;
    l->pairs[l->pair_count] = (pair){.first = first, .second = second};
    l->pair_table.entries[at] = ++l->pair_count;
    return l->pair_count - 1;
}

/* Adds occurrences of the pair in a word. Consecutive additions of a word store it once. */
static void pair_add(learning *l, uint32_t first, uint32_t second, uint32_t word_index)
{
    const uint32_t index = pair_find(l, first, second);
    pair *p;

    if (l->has_failed)
        return;
    p = &l->pairs[index];
    p->count += l->words[word_index].count;
    if (p->word_count > 0 && p->words[p->word_count - 1] == word_index)
        return;
    if (reserve_small(l, (void **)&p->words, p->word_count, &p->word_room, sizeof *p->words))
        p->words[p->word_count++] = word_index;
}

static void pairs_find(learning *l)
{
    for (uint32_t w = 0; w < l->word_count && !l->has_failed; w++) {
        const uint32_t *symbols = l->symbols + l->words[w].start;
        for (uint32_t i = 0; i + 1 < l->words[w].length && !l->has_failed; i++)
            pair_add(l, symbols[i], symbols[i + 1], w);
    }
    for (uint32_t p = 0; p < l->pair_count && !l->has_failed; p++)
        heap_push(l, p);
}

static void pairs_forget(learning *l, uint32_t word_index)
{
    const word *w = &l->words[word_index];
    const uint32_t *symbols = l->symbols + w->start;

    for (uint32_t i = 0; i + 1 < w->length && !l->has_failed; i++)
        l->pairs[pair_find(l, symbols[i], symbols[i + 1])].count -= w->count;
}

/* From left to right; returns whether there was any. */
static bool word_rewrite(learning *l, word *w, uint32_t first, uint32_t second, uint32_t token)
{
    uint32_t *symbols = l->symbols + w->start, kept = 0;
    const uint32_t before = w->length;

    for (uint32_t i = 0; i < before; i++) {
        const bool is_pair = i + 1 < before && symbols[i] == first && symbols[i + 1] == second;
        symbols[kept++] = is_pair ? token : symbols[i];
        i += is_pair;
    }
    w->length = kept;
    return kept < before;
}

static bool word_has(const learning *l, const word *w, uint32_t first, uint32_t second)
{
    const uint32_t *symbols = l->symbols + w->start;

    for (uint32_t i = 0; i + 1 < w->length; i++)
        if (symbols[i] == first && symbols[i + 1] == second)
            return true;
    return false;
}

/* Recounts the pairs of a word after it was rewritten. Pairs without the new token have the word
 * already; pairs with it have increased and go onto the heap. */
static void pairs_recount(learning *l, uint32_t word_index, uint32_t token)
{
    const word *w = &l->words[word_index];
    const uint32_t *symbols = l->symbols + w->start;

    for (uint32_t i = 0; i + 1 < w->length && !l->has_failed; i++) {
        if (symbols[i] != token && symbols[i + 1] != token) {
            l->pairs[pair_find(l, symbols[i], symbols[i + 1])].count += w->count;
            continue;
        }
        pair_add(l, symbols[i], symbols[i + 1], word_index);
        if (!l->has_failed)
            heap_push(l, pair_find(l, symbols[i], symbols[i + 1]));
    }
}

static void merge(learning *l, uint32_t index, uint32_t token)
{
    const pair merged = l->pairs[index]; /* a copy, because the array moves when pairs are added */

    for (uint32_t i = 0; i < merged.word_count && !l->has_failed; i++) {
        const uint32_t w = merged.words[i];
        if (!word_has(l, &l->words[w], merged.first, merged.second))
            continue;
        pairs_forget(l, w);
        word_rewrite(l, &l->words[w], merged.first, merged.second, token);
        pairs_recount(l, w, token);
    }
}

/* The most frequent pair that occurs at least twice; pairs that became rarer go back. */
static bool next_pair(learning *l, uint32_t *index)
{
    while (l->heap_count > 0 && !l->has_failed) {
        const wish top = heap_pop(l);
        const uint64_t count = l->pairs[top.pair].count;

        if (count == top.count && count >= 2) {
            *index = top.pair;
            return true;
        }
        if (count >= 2 && count < top.count)
            heap_push(l, top.pair);
    }
    return false;
}

/* ---- Learning ------------------------------------------------------------------------------ */

static void learning_free(learning *l)
{
    for (uint32_t p = 0; p < l->pair_count; p++)
        ty_free(l->pairs[p].words);
    ty_free(l->pairs);
    ty_free(l->symbols);
    ty_free(l->words);
    ty_free(l->occurrences);
    ty_free(l->word_table.entries);
    ty_free(l->pair_table.entries);
    ty_free(l->heap);
}

static bool tokens_write(const learning *l, byte_pairs *out)
{
    uint64_t count = 0;

    for (uint64_t i = 0; i < l->occurrence_count; i++)
        count += l->words[l->occurrences[i]].length;
    out->tokens = ty_alloc(count, sizeof *out->tokens);
    if (out->tokens == NULL)
        return false;
    for (uint64_t i = 0; i < l->occurrence_count; i++) {
        const word *w = &l->words[l->occurrences[i]];
        memcpy(out->tokens + out->count, l->symbols + w->start, w->length * sizeof *out->tokens);
        out->count += w->length;
    }
    return true;
}

ty_status ty_byte_pairs_learn(const char *text, size_t length, uint32_t most, byte_pairs *out,
                              ty_error *error)
{
    learning l = {.text = (const unsigned char *)text, .length = length};
    byte_pairs made = {.pairs = ty_alloc(most, sizeof *made.pairs)};
    uint32_t index;
    bool is_good;

    l.symbols = ty_alloc(length, sizeof *l.symbols);
    l.has_failed = l.symbols == NULL || made.pairs == NULL;
    if (!l.has_failed)
        words_find(&l);
    if (!l.has_failed && most > 0)
        pairs_find(&l);
    while (made.pair_count < most && next_pair(&l, &index)) {
        made.pairs[made.pair_count][0] = l.pairs[index].first;
        made.pairs[made.pair_count][1] = l.pairs[index].second;
        merge(&l, index, 256 + made.pair_count++);
    }
    is_good = !l.has_failed && tokens_write(&l, &made);
    learning_free(&l);
    if (!is_good) {
        ty_byte_pairs_clear(&made);
        return ty_fail(error, TY_ENOMEM, "out of memory for the tokens of %zu bytes", length);
    }
    *out = made;
    return TY_OK;
}

void ty_byte_pairs_clear(byte_pairs *made)
{
    ty_free(made->pairs);
    ty_free(made->tokens);
    *made = (byte_pairs){0};
}
