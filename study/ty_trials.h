/**
 * @file ty_trials.h
 * A short search for learning rate, momentum and batch: successive halving. All settings train on
 * so many samples from the same start; the better half, by the loss on the test set, goes on until
 * each has seen twice as many; and so on, until one is left (Jamieson and Talwalkar,
 * "Non-stochastic best arm identification and hyperparameter optimization", AISTATS 2016). n
 * settings cost about log2(n) / 2 + 1 times what n trainings on the first round's samples do,
 * instead of n / 2 times where all went all the way.
 *
 *     ty_trials_question q = {.question = question, .settings = "learning_rate=0.01+0.1"};
 *     TY_CHECK(ty_trials_run(&q, &watch, &trials, error), status, done);
 *     ty_trial *found = &trials.trials[0];
 */
#ifndef TY_TRIALS_H
#define TY_TRIALS_H

#include "ty_study.h"

#define TY_MOST_TRIALS 64
#define TY_MOST_TRIED_VALUES 16 /* of one setting */

/** A batch, and a learning rate for it. */
typedef struct ty_trials_rate {
    uint32_t batch;
    double learning_rate;
} ty_trials_rate;

/** One setting, and how far it came. */
typedef struct ty_trial {
    double learning_rate, momentum;
    uint32_t batch;
    uint32_t rounds;       /* that it was in */
    uint64_t samples;      /* that it has seen */
    double loss, accuracy; /* on the test set, after these; loss NaN: it diverged */
    double seconds;        /* of training, all rounds */
} ty_trial;

typedef struct ty_trials_question {
    ty_question question; /* on local ranks, as data parallel replicas */
    ty_training training; /* data; `steps` of the first round at the usual batch, 0: 64 */
    const char *settings; /* "learning_rate=0.01+0.1,momentum=0+0.9,batch=32+64": every
                             combination; what is not named is the workload's */
} ty_trials_question;

typedef struct ty_trials {
    uint32_t ranks, count, rounds;
    uint64_t first_samples; /* of the first round, at least */
    ty_trial *trials;       /* [count] owned: the best first; those that came further before those
                               that did not */
    double seconds;         /* of training, all together */
    uint64_t samples;       /* likewise */
    uint64_t whole_samples; /* had all gone as far as the best */
    /* What the law of batch and noise says beside it (ty_learning_rate): */
    bool has_noise_scale;
    double noise_scale_samples; /* of the best, in its last round */
    uint32_t by_rule_count;
    ty_trials_rate by_rule[TY_MOST_TRIED_VALUES]; /* of the other batches, from the best's rate */
} ty_trials;

/**
 * @param out [out] clear with ty_trials_clear, also after a failure
 * @return TY_EINVAL: settings without sense, fewer than two or more than TY_MOST_TRIALS;
 *         TY_ELIMIT: all diverged
 */
ty_status ty_trials_run(const ty_trials_question *question, const ty_watch *watch, ty_trials *out,
                        ty_error *error) TY_MUST_CHECK;
void ty_trials_to_json(const ty_trials *trials, ty_json_writer *writer);
void ty_trials_clear(ty_trials *trials);

#endif
