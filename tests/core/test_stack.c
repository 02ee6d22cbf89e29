/* Frameworks: the catalogue, JSON round trips, inheritance, and refusals. */
#include "ty_base.h"
#include "ty_plan.h"
#include "ty_stack.h"

#include <criterion/criterion.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static ty_stack *open_stack(const char *text)
{
    ty_stack *stack = NULL;
    ty_error error = {0};
    cr_assert_eq(ty_stack_open(text, &stack, &error), TY_OK, "%s: %s", text, error.message);
    return stack;
}

static char *text_of(const ty_stack *stack)
{
    ty_text text = {0};
    ty_json_writer writer = ty_json_writer_on(&text);
    char *out = NULL;
    ty_stack_to_json(stack, &writer, NULL);
    cr_assert_eq(ty_text_take(&text, &out, NULL), TY_OK);
    return out;
}

static void write_file(const char *folder, const char *name, const char *text, char path[256])
{
    snprintf(path, 256, "%s/%s", folder, name);
    cr_assert_eq(ty_file_write(path, text, strlen(text), NULL), TY_OK);
}

/* `text` with `find` replaced by `put`; to be freed by the caller. */
static char *changed(const char *text, const char *find, const char *put)
{
    const char *at = strstr(text, find);
    char *out = NULL;
    ty_text result = {0};
    cr_assert_not_null(at, "%s", find);
    ty_text_append(&result, text, (size_t)(at - text));
    ty_text_add(&result, put);
    ty_text_add(&result, at + strlen(find));
    cr_assert_eq(ty_text_take(&result, &out, NULL), TY_OK);
    return out;
}

Test(stack, names)
{
    cr_expect_str_eq(ty_stack_attention_name(TY_ATTENTION_OF_WORKLOAD), "workload");
    cr_expect_str_eq(ty_stack_attention_name(TY_ATTENTION_SCORES), "scores");
    cr_expect_str_eq(ty_stack_attention_name(TY_ATTENTION_FUSED), "fused");
    cr_expect_str_eq(ty_stack_attention_name(TY_STACK_ATTENTION_COUNT), "unknown");
    cr_expect_str_eq(ty_stack_memory_name(TY_MEMORY_WORKER), "worker");
    cr_expect_str_eq(ty_stack_memory_name(TY_MEMORY_AUTOGRAD), "autograd");
}

/* A framework file without one of its lines. */
static ty_stack *without(const char *text, const char *key)
{
    const char *at = strstr(text, key), *end = strchr(at, '\n') + 1;
    ty_json_document *document = NULL;
    ty_stack *stack = NULL;
    ty_error error = {0};
    ty_text rest = {0};
    while (*at != '\n')
        at--;
    ty_text_append(&rest, text, (size_t)(at + 1 - text));
    ty_text_add(&rest, end);
    cr_assert_eq(ty_json_parse(rest.data, rest.length, "old", &document, &error), TY_OK, "%s",
                 error.message);
    cr_assert_eq(ty_stack_from_json(ty_json_root(document), &stack, &error), TY_OK, "%s",
                 error.message);
    ty_json_free(document);
    ty_text_clear(&rest);
    return stack;
}

Test(stack, every_one_of_the_catalogue_is_whole)
{
    char **names = NULL;
    uint32_t count = 0;
    ty_error error = {0};

    cr_assert_eq(ty_stack_names(&names, &count, &error), TY_OK, "%s", error.message);
    cr_expect(count >= 10, "%u", count);
    for (uint32_t n = 0; n < count; n++) {
        ty_stack *stack = open_stack(names[n]), *read = NULL, *copy = NULL;
        char *before = text_of(stack), *after, *copied;
        ty_json_document *document = NULL;
        ty_digest digests[2];

        cr_expect_str_eq(stack->name, names[n]);
        cr_expect(n == 0 || strcmp(names[n - 1], names[n]) < 0, "sorted");
        for (uint32_t i = 0; ty_stack_constant_at(i) != NULL; i++) {
            const ty_stack_constant *c = ty_stack_constant_at(i);
            double value = *ty_stack_value(stack, c);
            cr_expect((value >= c->minimum && value <= c->maximum) ||
                          (c->may_be_of_device && value == TY_OF_DEVICE),
                      "%s: %s is %g", names[n], c->key, value);
            cr_expect(strlen(ty_stack_source(stack, i)) > 0);
        }
        cr_assert_eq(ty_json_parse(before, strlen(before), names[n], &document, &error), TY_OK);
        cr_assert_eq(ty_stack_from_json(ty_json_root(document), &read, &error), TY_OK, "%s",
                     error.message);
        cr_assert_eq(ty_stack_copy(stack, &copy, &error), TY_OK);
        after = text_of(read);
        copied = text_of(copy);
        cr_expect_str_eq(before, after);
        cr_expect_str_eq(before, copied);
        ty_stack_free(read);
        read = without(before, "step_jitter"); /* as in files from before the member existed */
        cr_expect(stack->step_jitter > 0 || read->step_jitter == 0);
        ty_stack_free(read);
        cr_assert_eq(ty_stack_from_json(ty_json_root(document), &read, &error), TY_OK);
        cr_expect_eq(ty_stack_digest(stack, &digests[0], NULL), TY_OK);
        cr_expect_eq(ty_stack_digest(read, &digests[1], NULL), TY_OK);
        cr_expect_str_eq(digests[0].hex, digests[1].hex);
        read->context_bytes += 1;
        cr_expect_eq(ty_stack_digest(read, &digests[1], NULL), TY_OK);
        cr_expect_str_neq(digests[0].hex, digests[1].hex);
        ty_json_free(document);
        ty_free(before);
        ty_free(after);
        ty_free(copied);
        ty_stack_free(stack);
        ty_stack_free(read);
        ty_stack_free(copy);
    }
    ty_names_free(names, count);
}

Test(stack, what_the_worker_and_its_relatives_say)
{
    ty_stack *worker = open_stack("trainyard"), *ddp = open_stack("pytorch-ddp");

    cr_expect(worker->product_share == TY_OF_DEVICE && worker->optimizer_bytes == TY_OF_DEVICE);
    cr_expect(worker->network_share == 1 && worker->gradient_bytes == 4);
    cr_expect(worker->memory == TY_MEMORY_WORKER && worker->overlaps_exchange);
    cr_expect_eq(worker->provenance, TY_MEASURED);
    cr_expect(ddp->memory == TY_MEMORY_AUTOGRAD && ddp->context_bytes == 1.5e9);
    cr_expect(ddp->network_share == 1, "what it does not say is its base's");
    ty_stack_free(worker);
    ty_stack_free(ddp);
}

/* Specified values replace the base's, all others are inherited. The sets survive a JSON round
 * trip, and errors in them are reported. */
Test(stack, plans_it_can_run)
{
    static const struct {
        const char *find, *put, *part;
    } wrong[] = {
        {"\"schedules\": []", "\"schedules\": [\"1f2b\"]", "/plans/schedules/0: found \"1f2b\""},
        {"\"none\", \"fp16\"", "\"none\", \"none\"", "/plans/compressions/1: found \"none\""},
        {"[\"0\", \"1\"]", "[1]", "/plans/zero_levels/0"},
        {"\"lanes\": []", "\"lanes\": \"tensor\"", "/plans/lanes"},
        {"\"lanes\"", "\"pipelines\"", "pipelines"},
    };
    ty_stack *worker = open_stack("trainyard"), *ddp = open_stack("pytorch-ddp");
    ty_stack *titan = open_stack("torchtitan"), *fsdp = open_stack("pytorch-fsdp");
    const ty_stack_plans all = ty_stack_all_plans();
    char *text = text_of(ddp), *whole = text_of(worker);
    ty_error error = {0};

    cr_expect(memcmp(&worker->plans.may, &all.may, sizeof all.may) == 0);
    cr_expect_null(strstr(whole, "\"plans\""), "what can run everything says nothing");
    cr_expect_eq(ddp->plans.may.of[TY_AXIS_SCHEDULE], 0);
    cr_expect_eq(ddp->plans.may.of[TY_AXIS_PP], 1u << TY_KIND_ONE);
    cr_expect_eq(titan->plans.may.of[TY_AXIS_ZERO], fsdp->plans.may.of[TY_AXIS_ZERO]);
    cr_expect_neq(titan->plans.may.of[TY_AXIS_TP], fsdp->plans.may.of[TY_AXIS_TP]);
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
        char *broken = changed(text, wrong[i].find, wrong[i].put);
        ty_json_document *document = NULL;
        ty_stack *read = NULL;
        cr_assert_eq(ty_json_parse(broken, strlen(broken), "file", &document, &error), TY_OK);
        cr_expect_eq(ty_stack_from_json(ty_json_root(document), &read, &error), TY_EPARSE, "%s",
                     wrong[i].put);
        cr_expect_not_null(strstr(error.message, wrong[i].part), "%s", error.message);
        ty_json_free(document);
        ty_free(broken);
    }

    ty_free(text);
    ty_free(whole);
    ty_stack_free(worker);
    ty_stack_free(ddp);
    ty_stack_free(titan);
    ty_stack_free(fsdp);
}

Test(stack, what_is_like_another_takes_its_figures_with_their_sources)
{
    ty_stack *node = open_stack("megatron-vtrain-node"), *late = open_stack("megatron-2021");

    cr_expect_eq(late->host_kernel_s, node->host_kernel_s, "two stacks up");
    cr_expect_neq(late->product_share, node->product_share);
    cr_expect(late->gradient_bytes == 4 && node->gradient_bytes == 2);
    cr_expect(late->attention == TY_ATTENTION_SCORES && late->has_dropout);
    for (uint32_t i = 0; ty_stack_constant_at(i) != NULL; i++) {
        if (strcmp(ty_stack_constant_at(i)->key, "host_kernel_s") == 0)
            cr_expect_str_eq(ty_stack_source(late, i), ty_stack_source(node, i));
        if (strcmp(ty_stack_constant_at(i)->key, "attention_backward") ==
            0) /* no source in the file itself */
            cr_expect_str_eq(ty_stack_source(late, i), node->source);
        if (strcmp(ty_stack_constant_at(i)->key, "gradient_bytes") == 0)
            cr_expect_str_eq(ty_stack_source(late, i), late->source);
    }
    cr_expect(ty_stack_is_fitted(late, "megatron_lm", "GPT 3.6B"));
    cr_expect_not(ty_stack_is_fitted(late, "megatron_lm", "GPT 1.7B"));
    cr_expect_not(ty_stack_is_fitted(late, "korthikanti", "GPT 3.6B"));
    ty_stack_free(node);
    ty_stack_free(late);
}

Test(stack, files)
{
    char folder[] = "/tmp/trainyard-stack-XXXXXX", path[256], other[256];
    ty_stack *stack;

    cr_assert_not_null(mkdtemp(folder));
    write_file(folder, "mine.json",
               "{\"schema\": \"trainyard.stack/1\", \"name\": \"mine\", \"title\": \"t\",\n"
               " \"source\": \"measured\", \"provenance\": \"measured\", \"like\": \"megatron\",\n"
               " \"product_share\": \"device\", \"kernel_s\": 3e-06, \"attention\": \"scores\",\n"
               " \"memory_share\": {\"value\": 0.5, \"source\": \"copy.c\"}, \"fitted\":\n"
               " [{\"source\": \"ours\"}]}",
               path);
    stack = open_stack(path);
    cr_expect(stack->product_share == TY_OF_DEVICE && stack->kernel_s == 3e-6);
    cr_expect(stack->memory_share == 0.5 && stack->attention == TY_ATTENTION_SCORES);
    cr_expect(ty_stack_is_fitted(stack, "ours", "any model"), "all of a source");
    cr_expect_not(ty_stack_is_fitted(stack, "megatron_lm", "GPT 3.6B"), "its own list, no other");
    ty_stack_free(stack);

    /* In the same folder, with a relative path to its base. */
    write_file(folder, "yours.json",
               "{\"schema\": \"trainyard.stack/1\", \"name\": \"yours\", \"title\": \"t\",\n"
               " \"source\": \"s\", \"provenance\": \"datasheet\", \"like\": \"mine.json\"}",
               other);
    stack = open_stack(other);
    cr_expect(stack->memory_share == 0.5 && stack->fitted_count == 1);
    ty_stack_free(stack);
    unlink(path);
    unlink(other);
    rmdir(folder);
}

Test(stack, what_is_refused)
{
    static const struct {
        const char *find, *put, *message;
    } rows[] = {
        {"trainyard.stack/1", "trainyard.plan/1", "/schema: found \"trainyard.plan/1\""},
        {"\"name\": \"trainyard\"", "\"name\": \"a\\nb\"",
         "/name: found \"a b\", expected a string without controls"},
        {"\"title\"", "\"titel\"", "/title: found only \"titel\""},
        {"\"measured\"", "\"guessed\"", "/provenance: found \"guessed\""},
        {"\"network_share\": 1,", "", "/network_share: found nothing, expected a value"},
        {"\"memory_waste\": 0", "\"memory_waste\": 20",
         "/memory_waste: found 20, expected a number from 0 to 10"},
        {"\"memory_waste\": 0", "\"memory_waste\": \"device\"", "/memory_waste: found \"device\""},
        {"\"memory_waste\": 0", "\"memory_waste\": {\"value\": 0}",
         "/memory_waste/source: found nothing"},
        {"\"memory_waste\": 0", "\"memory_waste\": {\"value\": -1, \"source\": \"s\"}",
         "/memory_waste/value: found -1"},
        {"\"memory_waste\": 0", "\"memory_waste\": {\"value\": 0, \"source\": \"s\", \"unit\": 1}",
         "/memory_waste/unit: found"},
        {"\"memory_waste\": 0", "\"memory_wast\": 1, \"memory_waste\": 0", "/memory_wast: found"},
        {"\"product_share\": \"device\"", "\"product_share\": \"devise\"",
         "/product_share: found \"devise\", expected a number or \"device\""},
        {"\"product_share\": \"device\"", "\"product_share\": -1", "/product_share: found -1"},
        {"\"product_share\": \"device\"", "\"product_share\": 0",
         "/product_share: found 0, expected a number > 0"},
        {"\"attention\": \"workload\"", "\"attention\": \"flash\"", "/attention: found \"flash\""},
        {"\"memory\": \"worker\"", "\"memory\": \"work\"", "/memory: found \"work\""},
        {"\"has_dropout\": false", "\"has_dropout\": 0", "/has_dropout: found 0"},
        {"\"fitted\": []", "\"fitted\": [{\"model\": \"m\"}]", "/fitted/0/source: found nothing"},
        {"\"fitted\": []", "\"fitted\": [{\"source\": \"s\", \"row\": 1}]", "/fitted/0/row: found"},
        {"\"provenance\"", "\"like\": \"trainyrd\", \"provenance\"",
         "/like: no stack or file 'trainyrd'; did you mean 'trainyard'?"},
        {"\"provenance\"", "\"like\": \"-\", \"provenance\"", "/like: standard input"},
    };
    ty_stack *worker = open_stack("trainyard");
    char folder[] = "/tmp/trainyard-stack-XXXXXX", path[256], *whole = text_of(worker);

    cr_assert_not_null(mkdtemp(folder));
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        char *text = changed(whole, rows[i].find, rows[i].put);
        ty_stack *stack = NULL;
        ty_error error = {0};
        write_file(folder, "bad.json", text, path);
        cr_expect_eq(ty_stack_open(path, &stack, &error), TY_EPARSE, "%s", rows[i].put);
        cr_expect_null(stack);
        cr_expect(strstr(error.message, "bad.json:") != NULL &&
                      strstr(error.message, rows[i].message) != NULL,
                  "%s: %s", rows[i].put, error.message);
        ty_free(text);
    }
    unlink(path);
    rmdir(folder);
    ty_free(whole);
    ty_stack_free(worker);
}

Test(stack, a_plan_s_stack_is_like_no_other)
{
    static const char text[] = "{\"schema\": \"trainyard.stack/1\", \"name\": \"n\", \"title\": "
                               "\"t\", \"source\": \"s\", \"provenance\": \"datasheet\", "
                               "\"like\": \"trainyard\"}";
    ty_json_document *document = NULL;
    ty_stack *stack = NULL;
    ty_error error = {0};

    cr_assert_eq(ty_json_parse(text, strlen(text), "plan", &document, &error), TY_OK);
    cr_expect_eq(ty_stack_from_json(ty_json_root(document), &stack, &error), TY_EPARSE);
    cr_expect_not_null(strstr(error.message, "/product_share: found nothing"), "%s", error.message);
    ty_json_free(document);
}

Test(stack, circles_are_refused)
{
    char folder[] = "/tmp/trainyard-stack-XXXXXX", first[256], second[256];
    ty_stack *stack = NULL;
    ty_error error = {0};

    cr_assert_not_null(mkdtemp(folder));
#define LIKE(other)                                                                                \
    "{\"schema\": \"trainyard.stack/1\", \"name\": \"n\", \"title\": \"t\", \"source\": \"s\", "   \
    "\"provenance\": \"datasheet\", \"like\": \"" other "\"}"
    write_file(folder, "a.json", LIKE("./b.json"), first);
    write_file(folder, "b.json", LIKE("./a.json"), second);
    cr_expect_eq(ty_stack_open(first, &stack, &error), TY_EPARSE);
    cr_expect_not_null(strstr(error.message, "b.json:/like: found \"./a.json\", expected a stack "
                                             "that is not like this one in turn"),
                       "%s", error.message);
    write_file(folder, "a.json", LIKE("a.json"), first);
    cr_expect_eq(ty_stack_open(first, &stack, &error), TY_EPARSE, "like itself");
    cr_expect_not_null(strstr(error.message, "a.json:/like: found \"a.json\""));
    cr_expect_null(stack);
    unlink(first);
    unlink(second);
    rmdir(folder);
}

Test(stack, names_there_are_not)
{
    ty_stack *stack = NULL;
    ty_error error = {0};

    cr_expect_eq(ty_stack_open("megatron-2012", &stack, &error), TY_EINVAL);
    cr_expect_not_null(strstr(error.message, "did you mean 'megatron-2021'?"), "%s", error.message);
    cr_expect_eq(ty_stack_open("xyzzy", &stack, &error), TY_EINVAL);
    cr_expect_not_null(strstr(error.message, "trainyard stack list"), "%s", error.message);
    cr_expect_eq(ty_stack_open("", &stack, &error), TY_EINVAL);
    cr_expect_eq(ty_stack_open("nowhere/mine.json", &stack, &error), TY_EIO);
    cr_expect_null(stack);
}

/* "NAME KEY=VALUE": constants on the command line, without a file. */
Test(stack, constants_behind_a_name)
{
    static const struct {
        const char *text, *says;
    } refused[] = {
        {"megatron compute_scal=2", "did you mean 'compute_scale'?"},
        {"megatron compute_scale=", "expected a number from"},
        {"megatron compute_scale=0", "found 'compute_scale=0'"},
        {"megatron step_jitter=1.5", "expected a number from 0 to 1"},
        {"megatron step_jitter=nan", "expected a number from 0 to 1"},
        {"megatron step_jitter=0.1x", "found 'step_jitter=0.1x'"},
        {"megatron transfer_s=0 fast", "found 'fast'"},
        {"megatrn transfer_s=0", "did you mean 'megatron'?"},
        {"transfer_s=0", "transfer_s=0"},
    };
    ty_stack *base = open_stack("megatron");
    ty_stack *changed = open_stack("megatron  compute_scale=1.25 transfer_s=1e-3");
    ty_stack *none = NULL;
    ty_error error = {0};

    cr_expect(changed->compute_scale == 1.25 && changed->transfer_s == 1e-3);
    cr_expect(base->compute_scale == 1 && base->transfer_s < 1e-3);
    cr_expect_eq(changed->host_kernel_s, base->host_kernel_s);
    cr_expect_str_eq(changed->name, "megatron-changed");
    cr_expect_str_eq(ty_stack_words(changed), "megatron  compute_scale=1.25 transfer_s=1e-3");
    cr_expect_not_null(strstr(changed->title, ", compute_scale=1.25 transfer_s=1e-3"));
    for (uint32_t i = 0; ty_stack_constant_at(i) != NULL; i++)
        if (strcmp(ty_stack_constant_at(i)->key, "compute_scale") == 0)
            cr_expect_str_eq(ty_stack_source(changed, i), "as asked");
    for (size_t i = 0; i < sizeof refused / sizeof refused[0]; i++) {
        cr_expect_eq(ty_stack_open(refused[i].text, &none, &error), TY_EINVAL, "%s",
                     refused[i].text);
        cr_expect_not_null(strstr(error.message, refused[i].says), "%s", error.message);
        cr_expect_null(none);
    }
    ty_stack_free(base);
    ty_stack_free(changed);
}

/* Every switch of the catalogue sets existing constants, and leaves the name unchanged. */
Test(stack, switches)
{
    ty_stack *megatron = open_stack("megatron"), *stack, *copy = NULL;
    ty_text words = {0};
    ty_error error = {0};

    cr_assert_geq(megatron->switch_count, 3);
    for (uint32_t i = 0; i < megatron->switch_count; i++) {
        uint32_t changed = 0;
        ty_text_clear(&words);
        ty_text_addf(&words, "megatron %s", megatron->switches[i].name);
        stack = open_stack(words.data);
        cr_expect_str_eq(stack->name, "megatron");
        cr_expect_str_eq(ty_stack_words(stack), words.data);
        cr_expect_eq(stack->judged_count, 0, "judged without it");
        for (uint32_t k = 0; ty_stack_constant_at(k) != NULL; k++) {
            const ty_stack_constant *constant = ty_stack_constant_at(k);
            const bool is_set =
                strncmp(megatron->switches[i].words, constant->key, strlen(constant->key)) == 0;
            const double before = *ty_stack_value(megatron, constant);
            const double after = *ty_stack_value(stack, constant);
            changed += before < after || before > after;
            if (is_set)
                cr_expect_str_eq(ty_stack_source(stack, k), megatron->switches[i].source);
        }
        cr_expect_eq(changed, 1, "%s", words.data);
        ty_stack_free(stack);
    }
    stack = open_stack("megatron tp_comm_overlap=on compute_scale=2");
    cr_expect_str_eq(stack->name, "megatron-changed");
    cr_assert_eq(ty_stack_copy(megatron, &copy, &error), TY_OK);
    cr_expect_eq(copy->switch_count, 0);
    ty_stack_free(copy);
    ty_stack_free(stack);
    stack = NULL;
    cr_expect_eq(ty_stack_open("pytorch-ddp tp_comm_overlap=on", &stack, &error), TY_EINVAL);
    cr_expect_eq(ty_stack_open("megatron tp_comm_overlap=yes", &stack, &error), TY_EINVAL);
    ty_stack_free(megatron);
    ty_text_clear(&words);
}

Test(stack, figures_of_some_devices)
{
    char folder[] = "/tmp/trainyard-stack-XXXXXX", path[256], other[320];
    ty_stack *stack, *again = NULL, *copy = NULL;
    ty_json_document *document = NULL;
    const ty_stack_constant *constant;
    double *value;
    char *text;
    ty_error error = {0};

    cr_assert_not_null(mkdtemp(folder));
    write_file(folder, "mine.json",
               "{\"schema\": \"trainyard.stack/1\", \"name\": \"mine\", \"title\": \"t\",\n"
               " \"source\": \"mine\", \"provenance\": \"measured\", \"like\": \"megatron-2021\",\n"
               " \"product_share\": 0.5, \"kernel_s\": 3e-06, \"on\": [\n"
               " {\"device\": \"h100\", \"product_share\": 0.6, \"fp8_share\": \"device\"},\n"
               " {\"device\": \"h100-sxm-500w\",\n"
               "  \"product_share\": {\"value\": 0.4, \"source\": \"hot\"}},\n"
               " {\"device\": \"hopper\", \"product_share\": 0.55, \"kernel_s\": 2e-06}]}",
               path);
    stack = open_stack(path);
    cr_expect_eq(ty_stack_on_device(stack, &stack->product_share, "h200", "hopper"), 0.55);
    cr_expect_eq(ty_stack_on_device(stack, &stack->product_share, "h200", NULL), 0.5);
    cr_expect_eq(ty_stack_on_device(stack, &stack->product_share, "b200", "blackwell"), 0.5);
    cr_expect_eq(ty_stack_on_device(stack, &stack->product_share, "h100-pcie", "hopper"), 0.6);
    cr_expect_eq(ty_stack_on_device(stack, &stack->kernel_s, "h100-pcie", "hopper"), 2e-6);
    cr_expect_eq(ty_stack_on_device(stack, &stack->product_share, "a100-sxm4-80gb", NULL), 0.5);
    cr_expect_eq(ty_stack_on_device(stack, &stack->product_share, "h100-pcie", NULL), 0.6);
    cr_expect_eq(ty_stack_on_device(stack, &stack->product_share, "h100-sxm-500w", NULL), 0.4);
    cr_expect_eq(ty_stack_on_device(stack, &stack->product_share, "h10", NULL), 0.5);
    cr_expect_eq(ty_stack_on_device(stack, &stack->fp8_share, "h100-sxm-500w", NULL), TY_OF_DEVICE);
    cr_expect_eq(ty_stack_on_device(stack, &stack->kernel_s, "h100-pcie", NULL), 3e-6);

    /* As in a plan file. */
    text = text_of(stack);
    cr_assert_eq(ty_json_parse(text, strlen(text), "stack", &document, &error), TY_OK);
    cr_assert_eq(ty_stack_from_json(ty_json_root(document), &again, &error), TY_OK, "%s",
                 error.message);
    ty_json_free(document);
    ty_free(text);
    cr_assert_eq(ty_stack_copy(again, &copy, &error), TY_OK);
    cr_expect_eq(ty_stack_on_device(copy, &copy->product_share, "h100-sxm-500w", NULL), 0.4);
    cr_expect_str_eq(copy->on[1].sources[0], "hot");
    cr_expect_null(copy->on[0].sources[0]);

    /* By name, for callers that fit the constants. */
    cr_assert_eq(ty_stack_find(copy, "h200:product_share", "hopper", &constant, &value, &error),
                 TY_OK);
    cr_expect_eq(*value, 0.55);
    cr_assert_eq(ty_stack_find(copy, "b200:memory_share", NULL, &constant, &value, &error), TY_OK);
    cr_expect_eq(*value, copy->memory_share);
    *value = 0.25;
    cr_expect_eq(ty_stack_on_device(copy, &copy->memory_share, "b200", NULL), 0.25);
    cr_expect_neq(copy->memory_share, 0.25);
    cr_assert_eq(ty_stack_find(copy, "b200:host_step_s", NULL, &constant, &value, &error),
                 TY_EINVAL);
    cr_expect_not_null(strstr(error.message, "may differ by device"), "%s", error.message);
    cr_assert_eq(ty_stack_find(copy, ":kernel_s", NULL, &constant, &value, &error), TY_EINVAL);
    cr_assert_eq(ty_stack_find(copy, "kernel", NULL, &constant, &value, &error), TY_EINVAL);
    ty_stack_free(again);
    ty_stack_free(copy);
    ty_stack_free(stack);

    /* The recorded error applies to that very framework only. */
    snprintf(other, sizeof other, "%s/judged.json", folder);
    write_file(
        folder, "judged.json",
        "{\"schema\": \"trainyard.stack/1\", \"name\": \"judged\", \"title\": \"t\",\n"
        " \"source\": \"s\", \"provenance\": \"measured\", \"like\": \"mine.json\", \"judged\":\n"
        " [{\"device\": \"h100\", \"rows\": 7, \"mean_error\": 0.1},\n"
        "  {\"device\": \"h100-sxm-500w\", \"rows\": 3, \"mean_error\": 0.2}]}",
        other);
    stack = open_stack(other);
    cr_assert_eq(ty_stack_copy(stack, &copy, &error), TY_OK);
    cr_expect_eq(ty_stack_judged_on(copy, "h100-pcie")->rows, 7);
    cr_expect_eq(ty_stack_judged_on(copy, "h100-sxm-500w")->mean_error, 0.2);
    cr_expect_null(ty_stack_judged_on(copy, "a100-sxm4-80gb"));
    text = text_of(copy);
    cr_expect_not_null(strstr(text, "\"rows\": 3"));
    ty_free(text);
    ty_stack_free(copy);
    ty_stack_free(stack);
    snprintf(other, sizeof other, "%s/judged.json transfer_s=0", folder);
    stack = open_stack(other);
    cr_expect_eq(stack->judged_count, 0);
    ty_stack_free(stack);
    snprintf(other, sizeof other, "%s/judged.json", folder);
    unlink(other);

    /* Constants in the framework's file apply to everything else; the rest is the base's, with its
     * source. */
    write_file(folder, "yours.json",
               "{\"schema\": \"trainyard.stack/1\", \"name\": \"yours\", \"title\": \"t\",\n"
               " \"source\": \"s\", \"provenance\": \"datasheet\", \"like\": \"mine.json\",\n"
               " \"product_share\": 0.7, \"on\": [{\"device\": \"a100\", \"product_share\": 0.8}]}",
               other);
    stack = open_stack(other);
    cr_expect_eq(ty_stack_on_device(stack, &stack->product_share, "h100-sxm-500w", NULL), 0.7);
    cr_expect_eq(ty_stack_on_device(stack, &stack->product_share, "a100-sxm4-80gb", NULL), 0.8);
    cr_expect_eq(ty_stack_on_device(stack, &stack->fp8_share, "h100-pcie", NULL), TY_OF_DEVICE);
    cr_expect_str_eq(stack->on[0].sources[2], "mine");
    ty_stack_free(stack);
    snprintf(other, sizeof other, "%s h100:product_share=0.9 a100:kernel_s=0", path);
    stack = open_stack(other);
    cr_expect_eq(ty_stack_on_device(stack, &stack->product_share, "h100-pcie", NULL), 0.9);
    cr_expect_eq(ty_stack_on_device(stack, &stack->kernel_s, "a100-sxm4-80gb", NULL), 0);
    cr_expect_eq(ty_stack_on_device(stack, &stack->kernel_s, "h100-pcie", NULL), 3e-6);
    ty_stack_free(stack);
    snprintf(other, sizeof other, "%s/yours.json", folder);
    unlink(other);
    unlink(path);
    rmdir(folder);
}

Test(stack, lack_of_memory_at_any_point)
{
    for (long n = 1;; n++) {
        ty_stack *stack = NULL, *copy = NULL;
        ty_status status;
        ty_memory_fail_after(n);
        status = ty_stack_open("megatron-2021 transfer_s=0 h100:kernel_s=0", &stack, NULL);
        if (status == TY_OK)
            status = ty_stack_copy(stack, &copy, NULL);
        ty_memory_fail_after(0);
        ty_stack_free(stack);
        ty_stack_free(copy);
        if (status == TY_OK)
            break;
        cr_assert_eq(status, TY_ENOMEM, "allocation %ld: %s", n, ty_status_name(status));
    }
}
