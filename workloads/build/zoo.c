/* Zoo files: reads the common keys and selects the family that reads the others. */
#include "zoo.h"

#include "import.h"
#include "ty_json.h"
#include "zoo_family.h"

#include <math.h>
#include <stdint.h>
#include <string.h>

/* ---- Training -------------------------------------------------------------------------------- */

typedef struct training {
    const char *source, *dataset;
    uint32_t batch;
    ty_optimizer optimizer;
} training;

/* Reads data set, usual batch and optimizer. */
static ty_status read_training(const ty_zoo_reader *reader, training *out)
{
    const ty_json *optimizer;

    TY_TRY(ty_json_string(reader->root, "source", &out->source, reader->error));
    TY_TRY(ty_json_string(reader->root, "dataset", &out->dataset, reader->error));
    TY_TRY(ty_json_uint32(reader->root, "global_batch", 1, 1u << 30, &out->batch, reader->error));
    out->optimizer = (ty_optimizer){0};
    TY_TRY(ty_json_object(reader->root, "optimizer", &optimizer, reader->error));
    TY_TRY(
        ty_record_read_all(optimizer, &ty_optimizer_record, &out->optimizer, NULL, reader->error));
    if (reader->overrides->batch != 0)
        out->batch = reader->overrides->batch;
    return TY_OK;
}

/* ---- Configurations as their authors publish them ---------------------------------------------
 */

static ty_status replace_text(char **text, const char *with, ty_error *error)
{
    char *copy = ty_strdup(with);

    TY_TRY(ty_check_memory(copy != NULL, error));
    ty_free(*text);
    *text = copy;
    return TY_OK;
}

/* "config" is a model's config.json, read by its importer; the zoo file has the training. */
static ty_status build_config(const ty_zoo_reader *reader, ty_workload **out)
{
    ty_import_options options = *reader->overrides;
    ty_workload *workload = NULL;
    const ty_import_format *const formats[] = {&ty_import_hf};
    const ty_json *config;
    char *text = NULL;
    uint64_t sequence = 0;
    training how;
    ty_status status;

    TY_CHECK(ty_json_object(reader->root, "config", &config, reader->error), status, cleanup);
    TY_CHECK(ty_json_text(config, &text, reader->error), status, cleanup);
    TY_CHECK(ty_zoo_size(reader->root, "sequence", 0, &sequence, reader->error), status, cleanup);
    TY_CHECK(read_training(reader, &how), status, cleanup);
    TY_CHECK(ty_json_end(reader->root, reader->error), status, cleanup);
    if (options.sequence == 0)
        options.sequence = sequence;
    TY_CHECK(ty_import_as(formats, 1, reader->name, text, strlen(text), &options, &workload, NULL,
                          reader->error),
             status, cleanup);
    TY_CHECK(replace_text(&workload->name, reader->name, reader->error), status, cleanup);
    TY_CHECK(replace_text(&workload->source, how.source, reader->error), status, cleanup);
    TY_CHECK(replace_text(&workload->dataset, how.dataset, reader->error), status, cleanup);
    workload->global_batch = how.batch;
    workload->optimizer = how.optimizer;
    *out = workload;
    workload = NULL; /* ownership moved */

cleanup:
    ty_workload_free(workload);
    ty_free(text);
    return status;
}

/* Reads the members of scenarios, in any family, after all layers. */
static ty_status read_scenario(ty_zoo_reader *reader)
{
    static const char *const names[TY_LEARNING_COUNT] = {"gradient", "evolution", "reinforcement"};
    int learning = TY_LEARNING_GRADIENT;
    uint64_t local_steps, rotary_base;
    double input_s = 0, deviation = 0;
    const char *last_frozen;
    ty_teacher teacher;

    if (ty_json_has(reader->root, "learning"))
        TY_TRY(ty_json_enum(reader->root, "learning", names, TY_LEARNING_COUNT, &learning,
                            reader->error));
    TY_TRY(ty_zoo_size(reader->root, "local_steps", 1, &local_steps, reader->error));
    if (ty_json_has(reader->root, "input_s_per_sample"))
        TY_TRY(ty_json_number(reader->root, "input_s_per_sample", 0, HUGE_VAL, &input_s,
                              reader->error));
    TY_TRY(ty_zoo_size(reader->root, "rotary_base", 0, &rotary_base, reader->error));
    ty_builder_set_rotary_base(reader->builder, rotary_base);
    ty_builder_set_scenario(reader->builder, (ty_learning)learning, (uint32_t)local_steps, input_s);
    if (ty_json_has(reader->root, "deviation"))
        TY_TRY(ty_json_number(reader->root, "deviation", 0, HUGE_VAL, &deviation, reader->error));
    ty_builder_set_deviation(reader->builder, deviation);
    if (ty_json_has(reader->root, "teacher")) {
        TY_TRY(ty_teacher_read(reader->root, &teacher, reader->error));
        ty_builder_set_teacher(reader->builder, &teacher);
    }
    if (ty_json_has(reader->root, "frozen_through")) {
        TY_TRY(ty_json_string(reader->root, "frozen_through", &last_frozen, reader->error));
        ty_builder_freeze_through(reader->builder, last_frozen);
    }
    return ty_zoo_progress(reader, reader->root);
}

/* ---- The whole ------------------------------------------------------------------------------- */

ty_status ty_zoo_build(const ty_json *root, const ty_zoo_overrides *overrides, ty_workload **out,
                       ty_error *error)
{
    static const char *const names[] = {
        "sequential", "residual", "transformer", "decoder", "encoder", "encoder_decoder", "config",
    };
    static const ty_zoo_family families[] = {
        ty_zoo_sequential,
        ty_zoo_residual,
        ty_zoo_transformer,
        ty_zoo_decoder,
        ty_zoo_encoder,
        ty_zoo_encoder_decoder,
        NULL, /* build_config */
    };
    static const bool is_language[] = {false, false, true, true, true, true, true};
    ty_status status = TY_OK;
    ty_zoo_reader reader = {.root = root, .overrides = overrides, .error = error};
    ty_builder *builder;
    training how;
    int family;

    TY_CHECK(ty_json_schema(root, TY_ZOO_SCHEMA, error), status, cleanup);
    TY_CHECK(ty_json_string(root, "name", &reader.name, error), status, cleanup);
    TY_CHECK(ty_json_enum(root, "family", names, sizeof names / sizeof names[0], &family, error),
             status, cleanup);
    if (overrides->vocabulary != 0 && !is_language[family]) {
        status = ty_fail(error, TY_EINVAL,
                         "%s: found vocabulary=%llu, but networks of the family %s have no one "
                         "vocabulary",
                         reader.name, (unsigned long long)overrides->vocabulary, names[family]);
        goto cleanup;
    }
    if (families[family] == NULL)
        return build_config(&reader, out);
    TY_CHECK(families[family](&reader), status, cleanup);
    TY_CHECK(read_training(&reader, &how), status, cleanup);
    ty_builder_set_source(reader.builder, how.source);
    ty_builder_set_training(reader.builder, how.dataset, how.batch, &how.optimizer);
    TY_CHECK(ty_zoo_progress(&reader, root), status, cleanup);
    TY_CHECK(read_scenario(&reader), status, cleanup);
    TY_CHECK(ty_json_end(root, error), status, cleanup);
    builder = reader.builder;
    reader.builder = NULL; /* ty_builder_finish frees it */
    status = ty_builder_finish(builder, out, error);

cleanup:
    ty_builder_free(reader.builder);
    return status;
}
