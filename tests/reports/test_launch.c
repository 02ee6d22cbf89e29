/* Launch files of every shape of plan, for every target: files or a reason, always. */
#include "../../reports/launch/launch.h"
#include "scene.h"

#include <criterion/criterion.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>
#include <yaml.h>

typedef struct launch_scene {
    scene made;
    ty_cluster *cluster;
    ty_costs *costs;
    ty_launch_input input;
} launch_scene;

static launch_scene open_scene(const char *spec, const char *cluster)
{
    launch_scene s = {.made = scene_of(spec)};
    ty_error error = {0};

    cr_assert_eq(ty_cluster_open(cluster, NULL, &s.cluster, &error), TY_OK, "%s", error.message);
    cr_assert_eq(ty_costs_new(s.made.plan, s.made.program, &s.costs, &error), TY_OK);
    s.input = (ty_launch_input){.plan = s.made.plan,
                                .program = s.made.program,
                                .costs = s.costs,
                                .cluster = s.cluster,
                                .job = "{}\n",
                                .steps = 10,
                                .command = "trainyard export",
                                .version = "0"};
    return s;
}

static void close_scene(launch_scene *s)
{
    ty_costs_free(s->costs);
    ty_cluster_free(s->cluster);
    scene_clear(&s->made);
}

static const ty_launch_file *file_named(const ty_launch_files *files, const char *name)
{
    for (uint32_t i = 0; i < files->count; i++)
        if (strcmp(files->files[i].name, name) == 0)
            return &files->files[i];
    cr_assert_fail("no file %s", name);
    return NULL;
}

static void check_files(const char *target, const ty_launch_files *files)
{
    cr_assert_gt(files->count, 0, "%s gives no files", target);
    for (uint32_t i = 0; i < files->count; i++) {
        const ty_launch_file *f = &files->files[i];
        cr_assert_gt(f->length, 0, "%s: %s is empty", target, f->name);
        cr_assert(f->is_binary || strlen(f->bytes) == f->length, "%s: %s", target, f->name);
        cr_assert_null(strchr(f->name, '/'), "%s: %s", target, f->name);
        cr_assert(!f->is_program || strncmp(f->bytes, "#!/bin/", 7) == 0, "%s: %s", target,
                  f->name);
    }
}

Test(launch, every_target_answers_every_plan)
{
    uint32_t written = 0, refused = 0;

    for (size_t p = 0; p < toy_spec_count; p++) {
        launch_scene s = open_scene(toy_specs[p].name, "32x p100-server");
        const char *target;
        for (uint32_t t = 0; (target = ty_launch_target(t, NULL)) != NULL; t++) {
            ty_error error = {0};
            ty_launch_files *files = NULL;
            ty_status status = ty_launch(target, &s.input, &files, &error);
            if (status == TY_OK) {
                check_files(target, files);
                written++;
            } else {
                char start[40];
                snprintf(start, sizeof start, "--to %s: ", target);
                cr_assert_eq(status, TY_EUNSUPPORTED, "%s of %s: %s", target, toy_specs[p].name,
                             error.message);
                cr_assert_eq(strncmp(error.message, start, strlen(start)), 0, "%s", error.message);
                cr_assert_gt(strlen(error.message), strlen(start) + 20, "no reason: %s",
                             error.message);
                cr_assert_null(files);
                refused++;
            }
            ty_launch_free(files);
        }
        close_scene(&s);
    }
    cr_assert_gt(written, toy_spec_count);
    cr_assert_gt(refused, toy_spec_count);
}

/* An order of collectives, too. */
Test(launch, priority_is_the_worker_s)
{
    launch_scene s = open_scene("data parallel", "32x p100-server");
    ty_plan *plan = (ty_plan *)s.input.plan;
    uint32_t started = 0;
    const char *target;

    plan->exchange_order = ty_alloc(plan->bucket_count, sizeof *plan->exchange_order);
    for (uint32_t b = 0; b < plan->bucket_count; b++)
        plan->exchange_order[b] = plan->bucket_count - 1 - b;
    for (uint32_t t = 0; (target = ty_launch_target(t, NULL)) != NULL; t++) {
        ty_error error = {0};
        ty_launch_files *files = NULL;
        const ty_status status = ty_launch(target, &s.input, &files, &error);
        if (ty_launch_needs_job(target) || strcmp(target, "nccl-tuner") == 0) {
            started += status == TY_OK;
            cr_expect_null(strstr(error.message, "priority"), "%s: %s", target, error.message);
        } else {
            cr_expect_eq(status, TY_EUNSUPPORTED, "%s", target);
            cr_expect(strstr(error.message, "priority=0") != NULL ||
                          strcmp(target, "megatron") == 0 || /* they refuse the model before */
                          strcmp(target, "torchtitan") == 0,
                      "%s: %s", target, error.message);
        }
        ty_launch_free(files);
    }
    cr_expect_geq(started, 3);
    close_scene(&s);
}

/* Stale gradients: supported by the worker; other launchers synchronize every step. */
Test(launch, late_gradients_are_the_worker_s)
{
    launch_scene s = open_scene("data parallel", "32x p100-server");
    uint32_t started = 0; /* mpirun and slurm can place any layout */
    const char *target;

    ((ty_plan *)s.input.plan)->staleness = 2;
    for (uint32_t t = 0; (target = ty_launch_target(t, NULL)) != NULL; t++) {
        ty_error error = {0};
        ty_launch_files *files = NULL;
        const ty_status status = ty_launch(target, &s.input, &files, &error);
        if (ty_launch_needs_job(target)) {
            started += status == TY_OK;
            cr_expect_null(strstr(error.message, "late"), "%s: %s", target, error.message);
        } else if (strcmp(target, "nccl-tuner") == 0) { /* starts no ranks, at any time */
            cr_expect_eq(status, TY_OK, "%s: %s", target, error.message);
        } else {
            cr_expect_eq(status, TY_EUNSUPPORTED, "%s", target);
            cr_expect(strstr(error.message, "late") != NULL || strcmp(target, "megatron") == 0 ||
                          strcmp(target, "torchtitan") == 0 || /* they refuse the model before */
                          strstr(error.message, "2 steps later") != NULL,
                      "%s: %s", target, error.message);
        }
        ty_launch_free(files);
    }
    cr_expect_geq(started, 2);
    close_scene(&s);
}

Test(launch, names_cannot_leave_comments)
{
    launch_scene s = open_scene(toy_specs[0].name, "32x p100-server");
    ty_launch_files *files = NULL;
    const ty_launch_file *script;
    ty_error error = {0};

    ty_free(s.made.plan->cluster_name);
    s.made.plan->cluster_name = ty_strdup("x\nrm -rf nothing\r\nreboot");
    s.input.command = "trainyard export 'a\nb'";
    cr_assert_eq(ty_launch("mpirun", &s.input, &files, &error), TY_OK, "%s", error.message);
    script = file_named(files, "launch.sh");
    cr_assert_not_null(strstr(script->bytes, "# Open MPI"));
    cr_assert_not_null(strstr(script->bytes, "rm -rf nothing"));
    cr_assert_null(strstr(script->bytes, "\nrm"));
    cr_assert_null(strstr(script->bytes, "\nreboot"));
    cr_assert_null(strchr(script->bytes, '\r'));
    cr_assert_null(strstr(script->bytes, "\nb'"));
    ty_launch_free(files);
    close_scene(&s);
}

/* ---- Names with any characters --------------------------------------------------------------- */

static const char *const hostile[] = {"'",
                                      "''",
                                      "\"",
                                      "\\",
                                      "`touch made`",
                                      "$(touch made)",
                                      "$HOME",
                                      "${IFS}",
                                      "; touch made;",
                                      "&& touch made",
                                      "| touch made",
                                      "> made",
                                      "#",
                                      " # ",
                                      ": ",
                                      "- ",
                                      "---",
                                      "\n---\n",
                                      "...",
                                      "&a ",
                                      "*a ",
                                      "!t ",
                                      "|",
                                      ">",
                                      "%TAG",
                                      "{",
                                      "}",
                                      "[",
                                      "]",
                                      ",",
                                      "@",
                                      "~",
                                      "null",
                                      "yes",
                                      "1e3",
                                      "0x10",
                                      " ",
                                      "  x  ",
                                      "\\\n",
                                      "\"\"\"",
                                      "\"\"\"\n",
                                      "\xc3\xa9",
                                      "\xf0\x9f\x9a\x82",
                                      "\xff",
                                      "\xe2\x80",
                                      "\nkind: Pod\nspec:\n  hostPID: true\n",
                                      "\xe2\x80\xa8kind: Pod\xe2\x80\xa8",
                                      "\xc2\x85kind: Pod\xc2\x85",
                                      "\xe2\x80\xa9",
                                      "\xe2\x80\xae",
                                      "\xef\xbb\xbf",
                                      "\x1b[2J"};
enum { HOSTILE_COUNT = sizeof hostile / sizeof hostile[0], CONTROL_COUNT = 0x9f };

/* The texts above, then each control character separately. */
static const char *hostile_text(size_t index, char room[32])
{
    const unsigned code = (unsigned)(index - HOSTILE_COUNT) + 1;

    if (index < HOSTILE_COUNT)
        return hostile[index];
    if (code < 0x80)
        snprintf(room, 32, "a%c- kind: Pod", (int)code);
    else
        snprintf(room, 32, "a%c%c- kind: Pod", (int)(0xc0 | code >> 6),
                 (int)(0x80 | (code & 0x3f)));
    return room;
}

static launch_scene open_hostile(const char *text)
{
    launch_scene s = open_scene("data parallel", "32x p100-server");

    for (uint32_t r = 0; r < s.made.plan->stages[0].replicas; r++)
        s.made.plan->stages[0].devices[r] = r; /* as launchers number them */
    ty_free(s.made.plan->cluster_name);
    s.made.plan->cluster_name = ty_strdup(text);
    ty_free(s.made.plan->strategy);
    s.made.plan->strategy = ty_strdup(text);
    ty_free(s.made.plan->workload->name);
    s.made.plan->workload->name = ty_strdup(text);
    s.input.command = text;
    s.input.script = text;
    return s;
}

/* The value of a key of a document's root. */
static const char *root_value(yaml_document_t *d, const char *key)
{
    yaml_node_t *root = yaml_document_get_root_node(d);

    for (yaml_node_pair_t *p = root->data.mapping.pairs.start; p < root->data.mapping.pairs.top;
         p++)
        if (strcmp((const char *)yaml_document_get_node(d, p->key)->data.scalar.value, key) == 0)
            return (const char *)yaml_document_get_node(d, p->value)->data.scalar.value;
    return "";
}

/* Whether any scalar in the document is this text. */
static bool has_scalar(yaml_document_t *d, const char *text)
{
    yaml_node_t *node;

    for (int i = 1; (node = yaml_document_get_node(d, i)) != NULL; i++)
        if (node->type == YAML_SCALAR_NODE && node->data.scalar.length == strlen(text) &&
            memcmp(node->data.scalar.value, text, strlen(text)) == 0)
            return true;
    return false;
}

static void check_documents(const char *what, const ty_launch_file *file, const char *const *kinds,
                            const char *script)
{
    yaml_parser_t parser;
    yaml_document_t document;
    bool is_named = false;

    cr_assert(yaml_parser_initialize(&parser));
    yaml_parser_set_input_string(&parser, (const unsigned char *)file->bytes, file->length);
    for (; *kinds != NULL; kinds++) {
        cr_assert(yaml_parser_load(&parser, &document), "%s: %s", what, parser.problem);
        cr_assert_not_null(yaml_document_get_root_node(&document), "%s: no %s", what, *kinds);
        cr_assert_str_eq(root_value(&document, "kind"), *kinds, "%s", what);
        cr_assert(!has_scalar(&document, "hostPID"), "%s", what);
        is_named = is_named || (script != NULL && has_scalar(&document, script));
        yaml_document_delete(&document);
    }
    cr_assert(yaml_parser_load(&parser, &document));
    cr_assert_null(yaml_document_get_root_node(&document), "%s: more documents", what);
    cr_assert(script == NULL || is_named, "%s: the script's name is another", what);
    yaml_document_delete(&document);
    yaml_parser_delete(&parser);
}

/* Whether a text is valid UTF-8, which YAML requires. */
static bool is_utf8(const char *text)
{
    return strcmp(text, "\xff") != 0 && strcmp(text, "\xe2\x80") != 0;
}

Test(launch, names_stay_names_in_yaml)
{
    static const char *const mpijob[] = {"ConfigMap", "PersistentVolumeClaim", "MPIJob", NULL};
    static const char *const pytorchjob[] = {"ConfigMap", "PyTorchJob", NULL};

    for (size_t i = 0; i < HOSTILE_COUNT + CONTROL_COUNT; i++) {
        char room[32], what[64];
        const char *text = hostile_text(i, room);
        launch_scene s = open_hostile(text);
        ty_launch_files *files = NULL;
        ty_error error = {0};

        snprintf(what, sizeof what, "text %zu \"%s\"", i, text);
        s.input.job = "{\"name\": \"a\xe2\x80\xa8kind: Pod\"}\n";
        cr_assert_eq(ty_launch("k8s-mpijob", &s.input, &files, &error), TY_OK, "%s", error.message);
        check_documents(what, file_named(files, "mpijob.yaml"), mpijob, NULL);
        ty_launch_free(files);
        files = NULL;
        if (is_utf8(text)) {
            cr_assert_eq(ty_launch("k8s-pytorchjob", &s.input, &files, &error), TY_OK, "%s: %s",
                         what, error.message);
            check_documents(what, file_named(files, "pytorchjob.yaml"), pytorchjob, text);
            ty_launch_free(files);
        }
        close_scene(&s);
    }
}

static void write_file(const char *folder, const char *name, const char *bytes)
{
    char path[512];

    snprintf(path, sizeof path, "%s/%s", folder, name);
    cr_assert_eq(ty_file_write(path, bytes, strlen(bytes), NULL), TY_OK);
    cr_assert_eq(chmod(path, 0755), 0);
}

/* Whether one of the launcher's arguments, each terminated by a zero, is the text. */
static bool was_given(const char *folder, const char *text)
{
    char path[512], *bytes = NULL;
    size_t length = 0, at;
    bool is_found = false;

    snprintf(path, sizeof path, "%s/given", folder);
    if (ty_file_read(path, 0, &bytes, &length, NULL) != TY_OK)
        return false;
    for (at = 0; at < length; at += strlen(bytes + at) + 1)
        is_found = is_found || strcmp(bytes + at, text) == 0;
    ty_free(bytes);
    unlink(path);
    return is_found;
}

Test(launch, names_stay_names_in_shells_and_python)
{
    static const char *const targets[][2] = {
        {"torchrun", "torchrun"}, {"horovod", "horovodrun"}, {"deepspeed", "deepspeed"}};
    char folder[] = "/tmp/trainyard-launch-XXXXXX", path[512], command[1200];

    cr_assert_not_null(mkdtemp(folder));
    snprintf(path, sizeof path, "%s:%s", folder, getenv("PATH"));
    setenv("PATH", path, 1);
    setenv("NODE_RANK", "0", 1);
    for (int t = 0; t < 3; t++)
        write_file(folder, targets[t][1], "#!/bin/sh\nprintf '%s\\0' \"$@\" >given\n");
    for (size_t i = 0; i < HOSTILE_COUNT + CONTROL_COUNT; i++) {
        char room[32];
        const char *text = hostile_text(i, room);
        launch_scene s = open_hostile(text);
        for (int t = 0; t < 3; t++) {
            ty_launch_files *files = NULL;
            ty_error error = {0};
            cr_assert_eq(ty_launch(targets[t][0], &s.input, &files, &error), TY_OK, "%s",
                         error.message);
            write_file(folder, "launch.sh", file_named(files, "launch.sh")->bytes);
            if (t == 0) {
                snprintf(path, sizeof path, "plan_%zu.py", i);
                write_file(folder, path, file_named(files, "trainyard_plan.py")->bytes);
            }
            ty_launch_free(files);
            snprintf(command, sizeof command, "cd %s && ./launch.sh", folder);
            cr_assert_eq(system(command), 0, "%s: text %zu", targets[t][0], i);
            cr_assert(was_given(folder, text), "%s: text %zu \"%s\" is not given", targets[t][0], i,
                      text);
            snprintf(path, sizeof path, "%s/made", folder);
            cr_assert(!ty_file_exists(path), "%s: text %zu was run", targets[t][0], i);
        }
        close_scene(&s);
    }
    snprintf(command, sizeof command, "cd %s && /usr/bin/python3 -m py_compile plan_*.py", folder);
    cr_assert_eq(system(command), 0);
    snprintf(command, sizeof command, "rm -rf %s", folder);
    cr_assert_eq(system(command), 0);
}

Test(launch, host_names_are_plain)
{
    static const char *const bad[] = {"", "-x", "a b", "a;b", "$(x)", "a\nb", "a'b", "a@b", "a:1"};
    launch_scene s = open_scene(toy_specs[0].name, "32x p100-server");

    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++) {
        char *names[32];
        ty_launch_files *files = NULL;
        ty_error error = {0};
        for (size_t h = 0; h < 32; h++)
            names[h] = (char *)bad[i];
        s.input.host_names = names;
        cr_assert_eq(ty_launch("slurm", &s.input, &files, &error), TY_EINVAL, "%s", bad[i]);
        cr_assert_not_null(strstr(error.message, "--nodes"), "%s", error.message);
    }
    close_scene(&s);
}

Test(launch, devices_are_the_cluster_s)
{
    launch_scene s = open_scene(toy_specs[0].name, "32x p100-server");
    ty_launch_files *files = NULL;
    ty_error error = {0};

    ty_cluster_free(s.cluster);
    cr_assert_eq(ty_cluster_open("1x p100-server", NULL, &s.cluster, &error), TY_OK);
    s.input.cluster = s.cluster;
    cr_assert_eq(ty_launch("mpirun", &s.input, &files, &error), TY_EINVAL);
    cr_assert_not_null(strstr(error.message, "device"), "%s", error.message);
    close_scene(&s);
}

Test(launch, lists_of_names)
{
    char **names = NULL;
    ty_error error = {0};
    static const char *const bad[] = {"", "a", "a,b,c,d", "a[1-3", "a[3-1]", "a[1-1000000000]"};

    cr_assert_eq(ty_host_names("gpu[07-08],login", 3, &names, &error), TY_OK, "%s", error.message);
    cr_assert_str_eq(names[0], "gpu07");
    cr_assert_str_eq(names[1], "gpu08");
    cr_assert_str_eq(names[2], "login");
    for (int i = 0; i < 3; i++)
        ty_free(names[i]);
    ty_free(names);
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++)
        cr_assert_eq(ty_host_names(bad[i], 3, &names, &error), TY_EINVAL, "%s", bad[i]);
    cr_assert_eq(ty_host_names("3", 2, &names, &error), TY_EINVAL); /* a count in place of names */
    cr_assert_not_null(strstr(error.message, "expected 2, one for each host, as in node[1-2]"),
                       "%s", error.message);
}

Test(launch, survives_failing_allocations)
{
    const char *target;

    for (uint32_t t = 0; (target = ty_launch_target(t, NULL)) != NULL; t++) {
        launch_scene s = open_scene(toy_specs[0].name, "32x p100-server");
        ty_status status = TY_ENOMEM;
        for (long n = 1; status == TY_ENOMEM; n++) {
            ty_launch_files *files = NULL;
            ty_error error = {0};
            cr_assert_lt(n, 100000);
            ty_memory_fail_after(n);
            status = ty_launch(target, &s.input, &files, &error);
            ty_memory_fail_after(0);
            cr_assert(status == TY_OK || status == TY_ENOMEM || status == TY_EUNSUPPORTED,
                      "%s: allocation %ld: %s", target, n, error.message);
            cr_assert_eq(files != NULL, status == TY_OK);
            ty_launch_free(files);
        }
        close_scene(&s);
    }
}

/* ---- Templates --------------------------------------------------------------------------- */

static const struct rendering {
    const char *template, *expected; /* NULL: refused */
} renderings[] = {
    {"a {{word}} b", "a it's b"},
    {"{{word|shell}} {{lines|yaml}}", "'it'\\''s' \"one\\ntwo\\n\""},
    {"k: {{lines|block}}\nnext\n", "k: |\n  one\n  two\nnext\n"},
    {"  k: {{word|block}}\n", "  k: |-\n    it's\n"},
    {"k: {{odd|block}}", "k: \"caf\\xE9 \\U0001F682 \\\"\\\\\""},
    {"  {{lines|indent}}\n", "  one\n  two\n"},
    {"{{whole|float}} {{exact|float}}", "2.0 1e-8"},
    {"{{#if whole}}y{{/if}}{{#if !whole}}n{{/if}}{{#if none}}n{{/if}}{{#if absent}}n{{/if}}", "y"},
    {"{{#if whole=2}}y{{/if}}{{#if whole=3}}n{{/if}}{{#if !whole=3}}y{{/if}}", "yy"},
    {"{{#each rows}}\n[{{item}} {{whole}}]\n{{/each}}\nend", "[a 2]\n[b 2]\nend"},
    {"  {{#if rows}}\nx\n  {{/if}}\ny", "x\ny"},
    {"{{#if absent}}{{#each rows}}{{nothing}}{{/each}}{{/if}}z", "z"},
    {"{{absent}}", NULL},
    {"{{word|shout}}", NULL},
    {"{{>no_such_template}}", NULL},
    {"{{rows}}", NULL},
    {"{{broken|yaml}}", NULL},
    {"{{#if whole}}open", NULL},
    {"{{#each rows}}open", NULL},
    {"stray{{/if}} end", NULL},
};

Test(launch, templates_are_filled)
{
    launch_values values = {0};

    ty_launch_put_text(&values, "word", "it's");
    ty_launch_put_text(&values, "lines", "one\ntwo\n");
    ty_launch_put_text(&values, "odd", "caf\xc3\xa9 \xf0\x9f\x9a\x82 \"\\");
    ty_launch_put_text(&values, "broken", "\xe2\x80");
    ty_launch_put_uint(&values, "whole", 2);
    ty_launch_put_uint(&values, "none", 0);
    ty_launch_put_number(&values, "exact", 1e-8);
    for (const char *item = "ab"; *item != '\0'; item++)
        ty_launch_put(ty_launch_put_row(&values, "rows"), "item", "%c", *item);
    for (size_t i = 0; i < sizeof renderings / sizeof renderings[0]; i++) {
        const struct rendering *r = &renderings[i];
        ty_text text = {0};
        ty_error error = {0};
        const ty_status status = ty_launch_render_text(r->template, &values, &text, &error);
        cr_expect_eq(status, r->expected != NULL ? TY_OK : TY_EINVAL, "%s: %s", r->template,
                     error.message);
        if (r->expected != NULL && status == TY_OK)
            cr_expect_str_eq(text.data, r->expected, "%s", r->template);
        ty_text_clear(&text);
    }
    ty_launch_values_clear(&values);
}
