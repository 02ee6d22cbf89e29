/**
 * @file ty_economics.h
 * Costs of training beyond the steps: failures and checkpoints, slow input, money and energy. The
 * score of a plan combines all of them.
 *
 *     ty_score_question question = ty_score_question_default();
 *     question.task = task;
 *     TY_CHECK(ty_score_plan(plan, cluster, &question, &score, error), status, cleanup);
 *     ty_score_to_json(&score, &writer, NULL);
 *
 * Rates of failure, idle power and the like are data with sources:
 * study/catalogue/economics.json.
 */
#ifndef TY_ECONOMICS_H
#define TY_ECONOMICS_H

#include "ty_convergence.h"
#include "ty_core.h"
#include "ty_topologies.h"

/* ---- Failures ---------------------------------------------------------------------------- */

/** Failure rates, and the costs of checkpoints and restarts. */
typedef struct ty_failure_question {
    uint32_t devices, hosts;
    double device_mtbf_s, host_mtbf_s; /* mean time between failures of one; HUGE_VAL: never */
    double checkpoint_write_s;         /* training pauses for that long; >= 0 */
    double restart_s;                  /* from the failure to the first new step; >= 0 */
    double checkpoint_interval_s;      /* work between checkpoints; 0: the best one is taken */
} ty_failure_question;

typedef struct ty_failure_forecast {
    double system_mtbf_s;         /* HUGE_VAL: never fails */
    double checkpoint_interval_s; /* chosen, or as requested; HUGE_VAL: none are written */
    double goodput;               /* useful time over wall-clock time; 0..1 */
} ty_failure_forecast;

/**
 * Failures are a Poisson process. The restart time includes failures during a restart. With M the
 * system's mean time between failures, d the time to write a checkpoint, R to restart and t the
 * work between checkpoints:
 *   1/M = devices/device MTBF + hosts/host MTBF
 *   goodput = t / (M e^(R/M) (e^((t+d)/M) - 1))
 *   best t = sqrt(2 d M) (1 + sqrt(d/2M)/3 + (d/2M)/9) - d for d < 2M, else M
 * Sources: Young 1974 (doi 10.1145/361147.361115); Daly 2006 (doi 10.1016/j.future.2004.11.016),
 * equations 20 and 37.
 */
ty_status ty_failures(const ty_failure_question *question, ty_failure_forecast *out,
                      ty_error *error) TY_MUST_CHECK;

/* ---- Money and energy -------------------------------------------------------------------- */

/**
 * A training whose time and cost are requested. Texts are borrowed and have the command line's
 * syntax; NULL means the catalogue's figures.
 */
typedef struct ty_cost_question {
    double tokens, epochs, steps; /* its length, one of the three; all 0: not requested */
    /* Items separated by ",": dollars per device and hour ("2.50"), those of one device
     * ("h100=2.50"), or a kind of price of study/catalogue/prices.json ("rental", "spot",
     * "reserved") */
    const char *price;
    const char *power;        /* of a device ("700W"), or a factor ("x0.9") */
    const char *failure_rate; /* failures per device and year ("0.05"), or a factor ("x2") */
} ty_cost_question;

/** Checks that the texts are valid and that at most one length is given. TY_EINVAL names the
 * option. */
ty_status ty_cost_question_check(const ty_cost_question *question, ty_error *error) TY_MUST_CHECK;
/** Samples of a training of that length; 0 without one.
 *  @return TY_EINVAL: tokens of a workload without sequences, epochs of data of unknown size */
ty_status ty_cost_question_samples(const ty_cost_question *question, const ty_workload *workload,
                                   const ty_input *input, uint32_t batch, double *out,
                                   ty_error *error) TY_MUST_CHECK;

/** Figures that the catalogue of clusters lacks; zero or NaN: as study/catalogue/economics.json. */
typedef struct ty_cost_rates {
    const char *price, *power;        /* as in ty_cost_question */
    double price_usd_per_device_hour; /* 0: by `price`, else of the catalogue */
    double price_usd_per_kwh;         /* 0: energy is in the price */
    double power_usage_effectiveness; /* of the building; >= 1, 0: 1 */
} ty_cost_rates;

typedef struct ty_cluster_rates {
    bool has_price; /* every device has one */
    double price_usd_per_s;
    double price_usd_per_device_hour; /* mean of the devices, without energy */
    char price_kind[24];              /* "rental", "given", "mixed" */
    char price_note[200];             /* its date and source */
    ty_interval power_w;              /* at the requested load; all 0: not known */
    char assumption[256];
} ty_cluster_rates;

/**
 * Price and power of a cluster. A device's price is the one given, else its part of its host's in
 * the cluster, else the first of study/catalogue/prices.json for its host or for the device; if a
 * kind of price is requested, the first of that kind. Power of a host at load u: P (i + (1-i) u), P
 * its rated power and i the share of it drawn when idle; of hosts without rating, devices at
 * theirs, times 1 + host overhead.
 * @param load share of the time that devices compute; 0..1
 */
ty_status ty_cluster_rates_of(const ty_cluster *cluster, double load, const ty_cost_rates *rates,
                              ty_cluster_rates *out, ty_error *error) TY_MUST_CHECK;

/* ---- Scoring a plan ---------------------------------------------------------------------- */

typedef struct ty_score_question {
    const ty_convergence *task; /* NULL: no time to target, only rates */
    double step_log_deviation;  /* of the predicted step time; 0: by the plan's provenance */
    const char *compressor;     /* catalogue name; NULL: by the plan's buckets */
    const ty_compressor_effect *compressor_effect; /* NULL: the prior */
    double learning_rate; /* with the momentum that the workload has; 0: the rule's for the batch,
                             as the plan's recipe changes it */
    ty_staleness_kind staleness;
    uint32_t staleness_depth;          /* stages, workers or bound; 0: the plan's stages, or the
                                          staleness it says */
    double device_mtbf_s, host_mtbf_s; /* 0: the catalogue's */
    double checkpoint_bytes_per_s;     /* to storage; 0: the catalogue's */
    double restart_s;                  /* 0: the catalogue's */
    double checkpoint_interval_s;      /* 0: the best */
    ty_cost_rates rates;
    ty_cost_question cost; /* its texts go before `rates` and the times between failures */
} ty_score_question;
ty_score_question ty_score_question_default(void);

/** Time, cost, energy and failure figures of one plan. */
typedef struct ty_score {
    ty_step_summary step;   /* as predicted */
    double step_time_s;     /* its */
    double samples_per_s;   /* while training */
    bool is_bound_by_input; /* reading the samples limits the step (ty_plan_input) */
    char input_bound_by[64];
    bool has_target;
    double steps;                  /* expected, multipliers included; 0 without a target */
    ty_interval samples_to_target; /* multipliers included */
    ty_interval compression_multiplier, staleness_multiplier, rate_multiplier;
    double noise_multiplier;      /* in steps: exp(c (k - 1)) of the temperature that rate and batch
                                     have, as in ty_temperature_multiplier; 1 where c is not known */
    ty_interval time_to_target_s; /* checkpoints and failures included */
    ty_failure_forecast failures;
    uint64_t checkpoint_bytes;
    bool has_price, has_power;
    double price_usd_per_hour;
    ty_interval money_usd; /* to target */
    ty_interval power_w;
    ty_interval energy_j;     /* to target */
    ty_training_cost cost;    /* of the requested length */
    ty_provenance provenance; /* of the step time */
    bool is_prior;            /* convergence is of the catalogue, not measured */
    char *notes;              /* a line each: what was assumed; free with ty_score_clear */
} ty_score;

/** Failure rates of a plan's devices and hosts: from the question, else from the catalogue. */
ty_status ty_failure_question_of(const ty_plan *plan, const ty_cluster *cluster,
                                 const ty_score_question *question, ty_failure_question *out,
                                 ty_error *error) TY_MUST_CHECK;

/**
 * Time to target, money, energy and goodput of a plan with a prediction. Uses the simulated step
 * time if there is one, else the estimated one.
 *   samples = samples(B) x compression x staleness x rate;
 *   time = samples / B x step time / goodput
 * @return TY_EINVAL: the plan has no prediction
 */
ty_status ty_score_plan(const ty_plan *plan, const ty_cluster *cluster,
                        const ty_score_question *question, ty_score *out,
                        ty_error *error) TY_MUST_CHECK;
void ty_score_clear(ty_score *score);

/**
 * Time and money of a training of the requested length, from the same figures as ty_score_plan.
 *   days = steps x step time / goodput
 * @return TY_EINVAL: a length that the workload does not have, such as tokens of images
 */
ty_status ty_training_cost_of(const ty_plan *plan, const ty_cluster *cluster,
                              const ty_cost_question *question, ty_training_cost *out,
                              ty_error *error) TY_MUST_CHECK;
/** `trainyard.score/1` where `key` is NULL; else the same as a member. */
void ty_score_to_json(const ty_score *score, ty_json_writer *writer, const char *key);
/** The member "notes": lines as texts. */
void ty_score_notes_to_json(const char *notes, ty_json_writer *writer);

#endif
