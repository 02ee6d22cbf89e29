/* Makes a workload from an importer's sizes: applies the user's values and the defaults, and checks
 * consistency. */
#include "import_language.h"

#include <string.h>

#define USUAL_SEQUENCE 4096
#define USUAL_BATCH 512
#define USUAL_LEARNING_RATE 3e-4

/* AdamW as for large models: betas 0.9 and 0.95, weight decay 0.1. Source: Brown et al.,
 *  arXiv:2005.14165, appendix B. No learning rate. */
static const ty_optimizer import_usual_optimizer = {
    .kind = TY_OPTIMIZER_ADAMW, .beta1 = 0.9, .beta2 = 0.95, .epsilon = 1e-8, .weight_decay = 0.1};

static ty_status set_sequence(ty_import_source *source, ty_transformer *t)
{
    uint64_t longest = ty_transformer_longest(t), asked = source->options->sequence;

    if (t->positions > 0 && asked > t->positions)
        return ty_fail(source->error, TY_EINVAL,
                       "%s: found sequence=%llu, expected at most its %llu positions", source->path,
                       (unsigned long long)asked, (unsigned long long)t->positions);
    if (longest > 0 && asked > longest)
        ty_import_note(source, "the model was trained with sequences of %llu tokens at most",
                       (unsigned long long)longest);
    if (asked > 0)
        t->sequence = asked;
    if (t->sequence > 0)
        return TY_OK;
    t->sequence = longest > 0 && longest < USUAL_SEQUENCE ? longest : USUAL_SEQUENCE;
    if (longest > t->sequence)
        ty_import_note(source, "sequences of %d tokens assumed; the model allows %llu",
                       USUAL_SEQUENCE, (unsigned long long)longest);
    else
        ty_import_note(source, "sequences of %llu tokens assumed", (unsigned long long)t->sequence);
    return TY_OK;
}

static void set_training(ty_import_source *source, ty_import_training *training)
{
    if (source->options->batch > 0)
        training->batch = source->options->batch;
    if (training->batch == 0) {
        training->batch = USUAL_BATCH;
        ty_import_note(source, "a global batch of %d assumed", USUAL_BATCH);
    }
    if (training->optimizer.learning_rate > 0)
        return;
    training->optimizer = import_usual_optimizer;
    training->optimizer.learning_rate = USUAL_LEARNING_RATE;
    ty_import_note(source, "AdamW with a learning rate of %g assumed", USUAL_LEARNING_RATE);
}

ty_status ty_import_finish_model(ty_import_source *source, ty_builder *builder,
                                 const ty_import_training *training, ty_workload **out)
{
    ty_status status = TY_OK;
    ty_import_training how = *training;
    ty_text origin = {0};
    ty_error mistake = {0};
    /* Without folders, so the name does not depend on the location of the file. */
    const char *base = strrchr(source->path, '/');

    set_training(source, &how);
    ty_text_addf(&origin, "imported from %s", base != NULL ? base + 1 : source->path);
    TY_CHECK(ty_text_check(&origin, source->error), status, cleanup);
    ty_builder_set_source(builder, origin.data);
    ty_builder_set_training(builder, "synthetic", how.batch, &how.optimizer);
    status = ty_builder_finish(builder, out, &mistake); /* frees it */
    builder = NULL;
    if (status != TY_OK && status != TY_ENOMEM)
        status = ty_fail(source->error, TY_EPARSE, "%.200s: expected sizes that fit (%s)",
                         source->path, mistake.message);
    else if (status != TY_OK)
        ty_fail(source->error, status, "%s: out of memory", source->path);

cleanup:
    ty_builder_free(builder);
    ty_text_clear(&origin);
    return status;
}

static ty_status build(ty_import_source *source, const ty_transformer *t,
                       const ty_import_training *training, ty_workload **out)
{
    char *name = NULL;
    ty_status status = ty_import_name(source, &name);

    if (status == TY_OK)
        status = ty_import_finish_model(source, ty_transformer_build(t, name), training, out);
    ty_free(name);
    return status;
}

ty_status ty_import_settle(ty_import_source *source, ty_transformer *t, const char *whole)
{
    char expected[TY_TRANSFORMER_TEXT_SIZE];
    ty_status status = set_sequence(source, t);

    if (status != TY_OK)
        return status;
    if (t->token_bytes == 0) /* the size of a token index */
        t->token_bytes = t->vocabulary <= 65536 ? 2 : 4;
    if (!ty_transformer_fits(t, expected))
        return ty_fail(source->error, TY_EPARSE, "%.200s expected %s", whole, expected);
    return TY_OK;
}

ty_status ty_import_transformer(ty_import_source *source, const ty_transformer *sizes,
                                const ty_import_training *training, const char *whole,
                                ty_workload **out)
{
    ty_transformer t = *sizes;
    ty_status status = ty_import_settle(source, &t, whole);

    return status == TY_OK ? build(source, &t, training, out) : status;
}
