/* Valid user input for a workload. */
#include "ty_workloads.h"

#include <criterion/criterion.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static ty_workload *open_one(const char *text)
{
    ty_workload *w = NULL;
    ty_error error = {0};
    cr_assert_eq(ty_workload_open(text, &w, &error), TY_OK, "%s: %s", text, error.message);
    return w;
}

Test(open, overrides)
{
    ty_workload *usual = open_one("gpt2"), *w = open_one("gpt2 sequence=512 batch=64");
    cr_assert_eq(w->tokens_per_sample, 512);
    cr_assert_eq(w->input.dimensions[0], 512);
    cr_assert_eq(w->sample_bytes, 513 * 2);
    cr_assert_eq(w->global_batch, 64);
    cr_assert_eq(ty_workload_parameter_bytes(w, 0, w->layer_count),
                 ty_workload_parameter_bytes(usual, 0, usual->layer_count));
    cr_assert_eq(usual->tokens_per_sample, 1024);
    ty_workload_free(usual);
    ty_workload_free(w);

    w = open_one("  lenet   batch=7 ");
    cr_assert_eq(w->global_batch, 7);
    ty_workload_free(w);
}

Test(open, says_what_is_wrong)
{
    static const struct {
        const char *text;
        ty_status status;
        const char *message;
    } rows[] = {
        {"resnet5", TY_EIO, "did you mean 'resnet50'?"},
        {"alexnt", TY_EIO, "did you mean 'alexnet'?"},
        {"something-else-entirely", TY_EIO, "nor one called like it among the "},
        {"./no/such/file.json", TY_EIO, "./no/such/file.json"},
        {"", TY_EINVAL, "expected the name"},
        {"gpt2 sequnce=512", TY_EINVAL, "did you mean 'sequence'?"},
        {"gpt2 512", TY_EINVAL, "found '512' behind the workload"},
        {"gpt2 sequence=0", TY_EINVAL, "sequence: "},
        {"gpt2 batch=-1", TY_EINVAL, "batch: "},
        {"gpt2 sequence=2048", TY_EINVAL, "gpt2: found sequence=2048, expected at most its 1024"},
        {"mlp sequence=16", TY_EINVAL, "mlp: found sequence=16, but its samples are not sequences"},
    };
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        ty_workload *w = NULL;
        ty_error error = {0};
        ty_status status = ty_workload_open(rows[i].text, &w, &error);
        cr_assert_eq(status, rows[i].status, "'%s': status %d: %s", rows[i].text, status,
                     error.message);
        cr_assert(strstr(error.message, rows[i].message) != NULL, "'%s': %s", rows[i].text,
                  error.message);
        cr_assert_null(w);
    }
}

/* Names of a model that users and the hub use. */
Test(open, names_that_people_type)
{
    static const struct {
        const char *text, *name;
    } rows[] = {
        {"meta-llama/Meta-Llama-3-70B", "llama-3-70b"},
        {"meta-llama/Llama-3.1-8B-Instruct", "llama-3.1-8b"},
        {"mistralai/Mistral-7B-v0.1", "mistral-7b"},
        {"openai-community/gpt2", "gpt2"},
        {"Qwen/Qwen2.5-7B-Instruct batch=8", "qwen2.5-7b"},
        {"deepseek-ai/DeepSeek-R1", "deepseek-v3"},
        {"moonshotai/Kimi-K2-Base", "kimi-k2"},
        {"google/gemma-2-9b", "gemma-2-9b"},
        {"DeepSeek R1", "deepseek-v3"},
        {"OPT 13B", "opt-13b"}, /* not opt-1.3b, although a point may be a separator elsewhere */
        {"OPT 1.3B", "opt-1.3b"},
        {"Llama 31 8b", "llama-3.1-8b"},
        {"gemma 3", "gemma-3-27b"},
        {"Whisper", "whisper-large-v3"},
    };
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        ty_workload *w = open_one(rows[i].text);
        cr_expect_str_eq(w->name, rows[i].name, "%s: %s", rows[i].text, w->name);
        ty_workload_free(w);
    }
}

/* Each alias gives its documented result, not that of another name with the same prefix ("gpt" is
 * gpt2, not gpt-tiny). */
Test(open, aliases_mean_what_they_say)
{
    ty_json_document *document = NULL;
    const ty_json *aliases;
    char *path = NULL;

    cr_assert_eq(ty_data_path("workloads", "aliases.json", &path, NULL), TY_OK);
    cr_assert_eq(ty_json_load(path, &document, NULL), TY_OK);
    cr_assert_eq(ty_json_object(ty_json_root(document), "aliases", &aliases, NULL), TY_OK);
    for (size_t i = 0; i < ty_json_size(aliases); i++) {
        const char *meant = NULL;
        ty_workload *w = open_one(ty_json_key(ty_json_at(aliases, i)));
        cr_assert_eq(ty_json_as_string(ty_json_at(aliases, i), &meant, NULL), TY_OK);
        cr_expect_str_eq(w->name, meant, "%s", ty_json_key(ty_json_at(aliases, i)));
        ty_workload_free(w);
    }
    ty_json_free(document);
    ty_free(path);
}

/* A workload written to a file and opened by path, with a blank in its name, too. */
Test(open, files)
{
    char folder[] = "/tmp/trainyard-open-XXXXXX", path[128], text[192];
    static const char *const names[] = {"w.json", "w w.json"};

    cr_assert_not_null(mkdtemp(folder));
    for (size_t i = 0; i < 2; i++) {
        ty_workload *w = open_one("lenet"), *again = NULL;
        ty_digest before, after;
        ty_error error = {0};

        snprintf(path, sizeof path, "%s/%s", folder, names[i]);
        cr_assert_eq(ty_workload_save(w, path, &error), TY_OK, "%s", error.message);
        again = open_one(path);
        cr_assert_eq(ty_workload_digest(w, &before, NULL), TY_OK);
        cr_assert_eq(ty_workload_digest(again, &after, NULL), TY_OK);
        cr_assert_str_eq(before.hex, after.hex);
        ty_workload_free(again);
        ty_workload_free(w);
        if (i == 0) {
            snprintf(text, sizeof text, "%s batch=5", path);
            w = open_one(text);
            cr_assert_eq(w->global_batch, 5);
            ty_workload_free(w);
            snprintf(text, sizeof text, "%s sequence=5", path);
            cr_assert_eq(ty_workload_open(text, &w, &error), TY_EINVAL);
            cr_assert(strstr(error.message, "sequence length") != NULL, "%s", error.message);
        }
        remove(path);
    }
    rmdir(folder);
}

Test(open, survives_failing_allocations)
{
    static const char *const texts[] = {"lenet batch=4", "gpt-tiny", "lenett"};
    for (size_t i = 0; i < sizeof texts / sizeof texts[0]; i++) {
        ty_status status = TY_ENOMEM;
        long n;
        for (n = 1; status == TY_ENOMEM; n++) {
            ty_workload *w = NULL;
            ty_error error = {0};
            cr_assert_lt(n, 100000);
            ty_memory_fail_after(n);
            status = ty_workload_open(texts[i], &w, &error);
            ty_memory_fail_after(0);
            cr_assert(status == TY_ENOMEM || status == (i == 2 ? TY_EIO : TY_OK),
                      "'%s', allocation %ld: status %d: %s", texts[i], n, status, error.message);
            ty_workload_free(w);
        }
        cr_assert_gt(n, 10, "'%s'", texts[i]);
    }
}
