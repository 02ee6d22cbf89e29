/* Attention by cuDNN and by our own kernels: gradients of both, the choice of implementation, and
 * its entry in the run's record. */
#include "gpu_cases.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define SWITCH "TRAINYARD_CUDA_ATTENTION"
#define BY_DNN ", attention by cuDNN "

/* ---- Models whose heads cuDNN supports ---- */

/* Grouped-query heads, rotary embeddings, biases; then norms of queries and keys, and no causal
 * mask. */
static ty_workload *make_wide(void)
{
    ty_workload *w = network_new(TY_INPUT_TOKEN, 1, (uint64_t[]){21});
    int x = network_embedding(w, 23, 24, 0), y;

    w->rotary_base = 50;
    y = network_attention(w, network_simple(w, x, TY_LAYER_RMS_NORM), 4, 2, 8, true, true);
    x = network_join(w, TY_LAYER_ADD, (int[]){x, y}, 2);
    y = network_attention(w, network_simple(w, x, TY_LAYER_RMS_NORM), 2, 2, 16, false, false);
    network_option(w, y, TY_HAS_QK_NORM, 1);
    x = network_join(w, TY_LAYER_ADD, (int[]){x, y}, 2);
    network_loss(w, network_linear(w, x, 23, true));
    return w;
}

/* A sequence with cross attention to another. */
static ty_workload *make_reader(void)
{
    ty_workload *w = network_new(TY_INPUT_TOKEN, 1, (uint64_t[]){19});
    const int tokens = network_embedding(w, 23, 24, 0);
    const int memory = network_slice(w, tokens, 0, 11);
    int x = network_slice(w, tokens, 11, 8), y;

    y = network_attention(w, network_simple(w, x, TY_LAYER_RMS_NORM), 3, 1, 8, false, true);
    x = network_join(w, TY_LAYER_ADD, (int[]){x, y}, 2);
    y = network_cross_attention(w, network_simple(w, x, TY_LAYER_RMS_NORM), memory, 4, 2, 8, true);
    x = network_join(w, TY_LAYER_ADD, (int[]){x, y}, 2);
    network_loss(w, network_linear(w, x, 23, true));
    return w;
}

static ty_workload *make_narrow(void)
{
    return network_make_llama(16, false); /* heads of 4 */
}

/* ---- Gradients ---- */

/* Checks a stage's description of itself. */
static bool is_told(ty_stage_device *stage, const char *told)
{
    const char *found = gpu->memory->describe(stage);

    return strstr(found, told) != NULL || wrong("found \"%s\", expected \"%s\"", found, told);
}

/* Makes all weights nonzero. */
static void weights_change(ty_stage_device *one)
{
    const uint64_t count = cpu->parameter_count(one);
    float *weights = cpu->parameters(one);
    uint64_t state = 5;

    for (uint64_t i = 0; i < count; i++)
        weights[i] += 0.1f * next_float(&state);
}

/* With the weights of the CPU's stage.
 * @param found [out] gradients, to be freed by the caller */
static bool gradients_run(const ty_stage_options *o, const char *asked, const char *told,
                          ty_stage_device *one, float **found)
{
    const uint64_t count = cpu->parameter_count(one);
    ty_stage_device *stage = NULL;
    bool is_right;

    setenv(SWITCH, asked, 1);
    is_right = stage_open(gpu, o, &stage);
    unsetenv(SWITCH);
    *found = malloc(count * sizeof **found);
    is_right =
        is_right && is_told(stage, told) &&
        (device_write(stage, gpu->parameters(stage), cpu->parameters(one), count) &&
         two_passes(gpu, stage, o) && device_read(stage, gpu->gradients(stage), count, *found));
    if (stage != NULL)
        gpu->close(stage);
    return is_right;
}

typedef struct attention_case {
    const char *name;
    ty_workload *(*make)(void);
    ty_precision precision;
    double tolerance; /* against the CPU in fp32; half of it between both kinds of kernels */
} attention_case;

static const attention_case cases[] = {
    {"attention wide bf16", make_wide, TY_PRECISION_BF16, 1e-1},
    {"attention wide fp16", make_wide, TY_PRECISION_FP16, 2e-2},
    {"attention reader bf16", make_reader, TY_PRECISION_BF16, 1e-1},
    {"attention reader fp16", make_reader, TY_PRECISION_FP16, 2e-2},
};
enum { CASES = sizeof cases / sizeof *cases };

static bool case_gradients(const attention_case *c)
{
    ty_workload *w = c->make();
    const ty_stage_options o = options_of(w, 3, TY_PRECISION_FP32);
    ty_stage_options other = o;
    ty_stage_device *one = NULL;
    float *by_dnn = NULL, *own = NULL, *again = NULL, *unordered = NULL;
    bool is_right;

    other.precision = c->precision;
    other.is_deterministic = true;
    is_right = stage_open(cpu, &o, &one);
    if (is_right)
        weights_change(one);
    is_right = is_right && two_passes(cpu, one, &o) &&
               gradients_run(&other, "auto", ", deterministic", one, &by_dnn) &&
               gradients_run(&other, "auto", BY_DNN, one, &again) &&
               gradients_run(&other, "own", ", own attention (" SWITCH "=own)", one, &own) &&
               is_close(w, one, by_dnn, cpu->gradients(one), c->tolerance) &&
               is_close(w, one, by_dnn, own, c->tolerance / 2);
    other.is_deterministic = false;
    is_right = is_right && gradients_run(&other, "auto", BY_DNN, one, &unordered) &&
               is_close(w, one, unordered, cpu->gradients(one), c->tolerance) &&
               is_close(w, one, unordered, by_dnn, c->tolerance / 2);
    if (is_right && memcmp(by_dnn, again, cpu->parameter_count(one) * sizeof *again) != 0)
        is_right = wrong("gradients of the same pass differ");
    if (is_right && memcmp(by_dnn, own, cpu->parameter_count(one) * sizeof *own) == 0)
        is_right = wrong("both ways give the same bits: one of them has not been taken");
    free(by_dnn);
    free(own);
    free(again);
    free(unordered);
    cpu->close(one);
    network_free(w);
    return is_right;
}

/* ---- Choice of the implementation ---- */

static bool told_by(ty_workload *(*make)(void), ty_precision precision, const char *asked,
                    const char *told)
{
    ty_workload *w = make();
    const ty_stage_options o = options_of(w, 2, precision);
    ty_stage_device *stage = NULL;
    ty_error error = {0};
    ty_status status;
    bool is_right;

    setenv(SWITCH, asked, 1);
    status = gpu->open(&o, &stage, &error);
    unsetenv(SWITCH);
    if (status == TY_OK)
        is_right = is_told(stage, told);
    else
        is_right = (status == TY_EINVAL && strstr(error.message, told) != NULL) ||
                   wrong("found \"%s\", expected \"%s\"", error.message, told);
    if (stage != NULL)
        gpu->close(stage);
    network_free(w);
    return is_right;
}

static bool case_switch(void)
{
    return told_by(make_wide, TY_PRECISION_BF16, "", BY_DNN) &&
           told_by(make_wide, TY_PRECISION_FP32, "auto", ", own attention (fp32)") &&
           told_by(make_narrow, TY_PRECISION_BF16, "auto",
                   ", own attention (heads of 4, cuDNN takes multiples of 8)") &&
           told_by(make_wide, TY_PRECISION_BF16, "perhaps",
                   SWITCH ": found \"perhaps\", expected auto or own");
}

/* ---- In plans: two parts of backward, sharded heads ---- */

#define GPT "gpt-tiny sequence=32", "gpt-tiny sequence=8"
static const plan_case plans[] = {
    {"attention gpt, zb-h1 2 stages, bf16", GPT, {GPT_ZERO_BUBBLE}, "bf16", 1e-1, 3e-2},
    {"attention gpt, 2 lanes, bf16",
     GPT,
     {.replicas = {1}, .buckets = 2, BATCH, .tp = 2},
     "bf16",
     1e-1,
     3e-2},
};

void attention_run(void)
{
    for (int i = 0; i < CASES; i++)
        if (is_asked(cases[i].name))
            report(cases[i].name, case_gradients(&cases[i]));
    if (is_asked("attention switch"))
        report("attention switch", case_switch());
    for (size_t i = 0; i < sizeof plans / sizeof *plans; i++)
        if (is_asked(plans[i].name))
            report(plans[i].name, case_plan(&plans[i]));
}
