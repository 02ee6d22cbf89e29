/* Launch files of every shape of plan, for every target: files or a reason, whatever happens. */
#include "scene.h"

#include <criterion/criterion.h>
#include <string.h>

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

/* Late gradients: for those who run the plan itself; others wait for every step's. */
Test(launch, late_gradients_are_the_worker_s)
{
    launch_scene s = open_scene("data parallel", "32x p100-server");
    uint32_t started = 0; /* mpirun and slurm place what is anywhere */
    const char *target;

    ((ty_plan *)s.input.plan)->staleness = 2;
    for (uint32_t t = 0; (target = ty_launch_target(t, NULL)) != NULL; t++) {
        ty_error error = {0};
        ty_launch_files *files = NULL;
        const ty_status status = ty_launch(target, &s.input, &files, &error);
        if (ty_launch_needs_job(target)) {
            started += status == TY_OK;
            cr_expect_null(strstr(error.message, "late"), "%s: %s", target, error.message);
        } else {
            cr_expect_eq(status, TY_EUNSUPPORTED, "%s", target);
            cr_expect(strstr(error.message, "late") != NULL || strcmp(target, "megatron") == 0 ||
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
