/*
 * Runs a fuzz target without libFuzzer: every file of the given folders, then mutations of them.
 *
 *   fuzz_json [--seed N] [--rounds N] [--keep FILE] FOLDER...
 *
 * The same seed gives the same inputs. With --keep each mutation is written to FILE before it runs,
 * so that after a crash FILE contains the culprit.
 */
#include "fuzz.h"

#include <dirent.h>
#include <string.h>

#define MAX_SEEDS 2048
#define MAX_LENGTH 65536

typedef struct input {
    char name[512];
    uint8_t *bytes;
    size_t length;
} input;

static uint64_t next_random(uint64_t *state)
{
    /* splitmix64: Steele, Lea, Flood, "Fast splittable pseudorandom number generators", 2014. */
    uint64_t z = (*state += 0x9E3779B97F4A7C15u);
    z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9u;
    z = (z ^ (z >> 27)) * 0x94D049BB133111EBu;
    return z ^ (z >> 31);
}

static size_t below(uint64_t *state, size_t limit)
{
    return limit == 0 ? 0 : (size_t)(next_random(state) % limit);
}

static void read_seed(input *seed)
{
    FILE *file = fopen(seed->name, "rb");

    MUST(file != NULL);
    seed->bytes = malloc(MAX_LENGTH);
    MUST(seed->bytes != NULL);
    seed->length = fread(seed->bytes, 1, MAX_LENGTH, file);
    fclose(file);
    seed->bytes = realloc(seed->bytes, seed->length + 1); /* there are many */
    MUST(seed->bytes != NULL);
}

static int compare_inputs(const void *a, const void *b)
{
    return strcmp(((const input *)a)->name, ((const input *)b)->name);
}

/* Appends the files of `folder`, sorted by name for any order of the system's list. */
static size_t read_folder(const char *folder, input *seeds, size_t count)
{
    DIR *directory = opendir(folder);
    const struct dirent *entry;
    size_t first = count;

    MUST(directory != NULL);
    while ((entry = readdir(directory)) != NULL) {
        if (entry->d_name[0] == '.')
            continue;
        MUST(count < MAX_SEEDS);
        snprintf(seeds[count].name, sizeof seeds[count].name, "%.250s/%.250s", folder,
                 entry->d_name);
        count++;
    }
    closedir(directory);
    qsort(seeds + first, count - first, sizeof *seeds, compare_inputs);
    for (size_t i = first; i < count; i++)
        read_seed(&seeds[i]);
    return count;
}

/* Replaces `removed` bytes at `at` by `length` others; no change if they do not fit. */
static void splice(input *to, size_t at, size_t removed, const uint8_t *bytes, size_t length)
{
    if (removed > to->length - at)
        removed = to->length - at;
    if (to->length - removed + length > MAX_LENGTH)
        return;
    memmove(to->bytes + at + length, to->bytes + at + removed, to->length - at - removed);
    memcpy(to->bytes + at, bytes, length);
    to->length += length - removed;
}

static void mutate(input *to, const input *seeds, size_t count, uint64_t *random)
{
    static const char *const tokens[] = {
        "{", "}", "[", "]", ",",   ":",    "\"",   "\\",    "0",  "-1", "1e400", "9007199254740992",
        "-", ".", "e", "1", "0.5", "null", "true", "\"a\"", "[]", "{}", "\xff",  "\\u0000"};
    const input *other = &seeds[below(random, count)];
    size_t at = below(random, to->length + 1);
    size_t size = 1 + below(random, 1 + below(random, 64));
    size_t from = below(random, other->length);
    const char *token = tokens[below(random, sizeof tokens / sizeof tokens[0])];
    uint8_t byte = (uint8_t)next_random(random);

    switch (below(random, 6)) {
    case 0:
        splice(to, at, 1, &byte, 1);
        break;
    case 1:
        splice(to, at, size, &byte, 0);
        break;
    case 2: /* part of a seed, as a replacement or an insertion */
        if (size > other->length - from)
            size = other->length - from;
        splice(to, at, below(random, 2) * size, other->bytes + from, size);
        break;
    case 3:
        splice(to, at, below(random, 3), (const uint8_t *)token, strlen(token));
        break;
    case 4: /* another digit, if there is one: the input stays well-formed */
        while (at < to->length && (to->bytes[at] < '0' || to->bytes[at] > '9'))
            at++;
        byte = (uint8_t)('0' + byte % 10);
        splice(to, at, 1, &byte, at < to->length);
        break;
    default:
        if (below(random, 8) == 0)
            to->length = at;
    }
}

static void keep(const char *path, const input *in)
{
    FILE *file = path == NULL ? NULL : fopen(path, "wb");
    if (file == NULL)
        return;
    fwrite(in->bytes, 1, in->length, file);
    fclose(file);
}

/* From a copy of exact size, so that a sanitizer sees any read beyond the end. */
static void run(const input *in)
{
    uint8_t *exact = malloc(in->length > 0 ? in->length : 1);
    MUST(exact != NULL);
    memcpy(exact, in->bytes, in->length);
    LLVMFuzzerTestOneInput(exact, in->length);
    free(exact);
}

int main(int argc, char **argv)
{
    static input seeds[MAX_SEEDS];
    input current = {.bytes = malloc(MAX_LENGTH)};
    unsigned long long seed = 1, rounds = 5000;
    const char *kept = NULL;
    uint64_t random;
    size_t count = 0;

    MUST(current.bytes != NULL);
    for (int i = 1; i < argc; i++) {
        if (i + 1 < argc && strcmp(argv[i], "--seed") == 0)
            seed = strtoull(argv[++i], NULL, 10);
        else if (i + 1 < argc && strcmp(argv[i], "--rounds") == 0)
            rounds = strtoull(argv[++i], NULL, 10);
        else if (i + 1 < argc && strcmp(argv[i], "--keep") == 0)
            kept = argv[++i];
        else
            count = read_folder(argv[i], seeds, count);
    }
    printf("%s: %zu seeds, then %llu rounds from random seed %llu\n", argv[0], count, rounds, seed);
    fflush(stdout);
    for (size_t i = 0; i < count; i++)
        run(&seeds[i]);
    random = seed;
    for (unsigned long long round = 0; round < rounds && count > 0; round++) {
        const input *from = &seeds[below(&random, count)];
        memcpy(current.bytes, from->bytes, from->length);
        current.length = from->length;
        for (size_t steps = 1 + below(&random, 4); steps > 0; steps--)
            mutate(&current, seeds, count, &random);
        keep(kept, &current);
        run(&current);
    }
    for (size_t i = 0; i < count; i++)
        free(seeds[i].bytes);
    free(current.bytes);
    return 0;
}
