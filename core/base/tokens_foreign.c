/* Token files of Megatron-LM and llm.c. */
#include "tokens_foreign.h"
#include "tokens.h"

#include "ty_base.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>

static const char megatron_magic[] = "MMIDIDX\0"; /* with the 0 at the end: 9 bytes */
enum { MEGATRON_HEADER = 34, LLMC_HEADER = 1024 };

static const struct {
    uint32_t magic, version, token_bytes;
} llmc_kinds[] = {{20240520, 1, 2}, {20240801, 7, 4}};

static uint64_t number_at(const unsigned char *bytes, uint32_t count)
{
    uint64_t value = 0;

    for (uint32_t i = 0; i < count; i++)
        value |= (uint64_t)bytes[i] << (8 * i);
    return value;
}

/* The first bytes of a file; 0 if it cannot be read. */
static size_t head_read(const char *path, unsigned char *bytes, size_t count)
{
    FILE *file = ty_file_check_plain(path, NULL) == TY_OK ? fopen(path, "rb") : NULL;
    size_t got = 0;

    if (file != NULL) {
        got = fread(bytes, 1, count, file);
        fclose(file);
    }
    return got;
}

/* NAME.bin and NAME.idx, from either name. */
static ty_status sibling_of(const char *path, const char *end, char **out, ty_error *error)
{
    const size_t length = strlen(path);
    ty_text text = {0};

    if (length > 4 &&
        (strcmp(path + length - 4, ".bin") == 0 || strcmp(path + length - 4, ".idx") == 0))
        ty_text_addf(&text, "%.*s%s", (int)(length - 4), path, end);
    else
        ty_text_addf(&text, "%s%s", path, end);
    return ty_text_take(&text, out, error);
}

static bool is_llmc(const char *path, size_t *kind)
{
    unsigned char head[8];

    if (head_read(path, head, sizeof head) < sizeof head)
        return false;
    for (*kind = 0; *kind < 2; (*kind)++)
        if (number_at(head, 4) == llmc_kinds[*kind].magic)
            return true;
    return false;
}

static bool is_megatron(const char *path)
{
    unsigned char head[sizeof megatron_magic];
    char *index = NULL;
    bool is_one;

    if (sibling_of(path, ".idx", &index, NULL) != TY_OK)
        return false;
    is_one = head_read(index, head, sizeof head) == sizeof head &&
             memcmp(head, megatron_magic, sizeof head) == 0;
    ty_free(index);
    return is_one;
}

bool ty_tokens_is_foreign(const char *path)
{
    size_t kind;
    return is_llmc(path, &kind) || is_megatron(path);
}

static ty_status size_find(const char *path, uint64_t *out, ty_error *error)
{
    struct stat about;
    ty_status status = ty_file_check_plain(path, error);

    if (status == TY_OK && stat(path, &about) != 0)
        status = ty_fail(error, TY_EIO, "%s: %s", path, strerror(errno));
    if (status == TY_OK)
        *out = (uint64_t)about.st_size;
    return status;
}

static ty_status llmc_read(const char *path, size_t kind, uint64_t *start, ty_tokens *tokens,
                           ty_error *error)
{
    unsigned char head[12];
    uint64_t bytes = 0, version, count;
    const size_t got = head_read(path, head, sizeof head);

    TY_TRY(size_find(path, &bytes, error));
    version = got == sizeof head ? number_at(head + 4, 4) : 0;
    count = got == sizeof head ? number_at(head + 8, 4) : 0;
    if (version != llmc_kinds[kind].version)
        return ty_fail(error, TY_EPARSE, "%s: found version %llu of llm.c's tokens, expected %u",
                       path, (unsigned long long)version, llmc_kinds[kind].version);
    if (bytes != LLMC_HEADER + count * llmc_kinds[kind].token_bytes)
        return ty_fail(error, TY_EPARSE,
                       "%s: found %llu bytes, expected a header of %d and %llu tokens of %u", path,
                       (unsigned long long)bytes, LLMC_HEADER, (unsigned long long)count,
                       llmc_kinds[kind].token_bytes);
    *start = LLMC_HEADER;
    tokens->token_bytes = llmc_kinds[kind].token_bytes;
    tokens->count = count;
    return TY_OK;
}

static ty_status index_check(const unsigned char *index, uint64_t length, const char *name,
                             ty_tokens *tokens, ty_error *error)
{
    static const uint32_t bytes_of[] = {[1] = 1, [4] = 4, [8] = 2};
    const uint32_t type = length >= MEGATRON_HEADER ? index[17] : 0;
    uint64_t sequences, documents, total = 0;

    if (length < MEGATRON_HEADER || number_at(index + 9, 8) != 1)
        return ty_fail(error, TY_EPARSE, "%s: found no index of version 1, expected Megatron-LM's",
                       name);
    if (type > 8 || bytes_of[type] == 0)
        return ty_fail(error, TY_EPARSE,
                       "%s: found tokens of type %u, expected 1 (uint8), 4 (int32) or 8 (uint16)",
                       name, type);
    sequences = number_at(index + 18, 8);
    documents = number_at(index + 26, 8);
    if (sequences > length || documents > length ||
        length != MEGATRON_HEADER + 12 * sequences + 8 * documents)
        return ty_fail(error, TY_EPARSE,
                       "%s: found %llu bytes, expected a header of %d, 12 for each of %llu "
                       "sequences and 8 for each of %llu documents",
                       name, (unsigned long long)length, MEGATRON_HEADER,
                       (unsigned long long)sequences, (unsigned long long)documents);
    for (uint64_t i = 0; i < sequences; i++) {
        const uint64_t place = number_at(index + MEGATRON_HEADER + 4 * sequences + 8 * i, 8);
        const uint64_t tokens_here = number_at(index + MEGATRON_HEADER + 4 * i, 4);

        if (place != total * bytes_of[type] || tokens_here > INT32_MAX)
            return ty_fail(error, TY_EPARSE,
                           "%s: sequence %llu: found place %llu and length %llu, expected place "
                           "%llu, behind the sequences before",
                           name, (unsigned long long)i, (unsigned long long)place,
                           (unsigned long long)tokens_here,
                           (unsigned long long)(total * bytes_of[type]));
        total += tokens_here;
    }
    tokens->token_bytes = bytes_of[type];
    tokens->count = total;
    return TY_OK;
}

static ty_status megatron_read(const char *given, char **path, uint64_t *start, ty_tokens *tokens,
                               ty_error *error)
{
    char *index_path = NULL, *index = NULL, *data = NULL;
    uint64_t bytes = 0;
    size_t length;
    ty_status status;

    TY_CHECK(sibling_of(given, ".idx", &index_path, error), status, cleanup);
    TY_CHECK(sibling_of(given, ".bin", &data, error), status, cleanup);
    TY_CHECK(ty_file_read(index_path, 0, &index, &length, error), status, cleanup);
    TY_CHECK(index_check((const unsigned char *)index, length, index_path, tokens, error), status,
             cleanup);
    TY_CHECK(size_find(data, &bytes, error), status, cleanup);
    if (bytes != tokens->count * tokens->token_bytes) {
        status =
            ty_fail(error, TY_EPARSE, "%s: found %llu bytes, expected %llu tokens of %u, as %s",
                    data, (unsigned long long)bytes, (unsigned long long)tokens->count,
                    tokens->token_bytes, index_path);
        goto cleanup;
    }
    *start = 0;
    *path = data;
    data = NULL; /* given away */

cleanup:
    ty_free(index_path);
    ty_free(index);
    ty_free(data);
    return status;
}

ty_status ty_tokens_foreign_read(const char *given, char **path, uint64_t *start, ty_tokens *tokens,
                                 ty_error *error)
{
    size_t kind;

    if (!is_llmc(given, &kind))
        return megatron_read(given, path, start, tokens, error);
    TY_TRY(llmc_read(given, kind, start, tokens, error));
    *path = ty_strdup(given);
    return *path != NULL ? TY_OK : ty_fail(error, TY_ENOMEM, "%s: out of memory", given);
}
