/* Input of samples: options, documents, and rates against closed forms. */
#include "ty_core.h"
#include "ty_json.h"

#include <criterion/criterion.h>
#include <math.h>
#include <string.h>

static void check_near(double found, double expected, const char *what)
{
    cr_assert_leq(fabs(found - expected), 1e-12 * fabs(expected), "%s: %.17g, expected %.17g", what,
                  found, expected);
}

static const ty_storage memory = {
    .name = "memory", .bandwidth_bytes_per_s = 10e9, .requests = 1, .capacity_bytes = 100};
static const ty_storage disk = {
    .name = "disk", .bandwidth_bytes_per_s = 1e9, .requests = 1, .capacity_bytes = 300};
static const ty_storage store = {
    .name = "store", .is_shared = true, .bandwidth_bytes_per_s = 0.1e9, .requests = 1};

Test(input, slowest_part_sets_the_rate)
{
    const ty_storage levels[] = {memory, disk, store};
    ty_input_question q = {.levels = levels,
                           .level_count = 3,
                           .input = {.data_bytes = 1000, .decode_samples_per_s = 100, .cores = 10},
                           .sample_bytes = 1e5,
                           .hosts = 1,
                           .readers = 1,
                           .host_readers = 1};
    ty_input_forecast o;

    cr_assert_eq(ty_input_rate(&q, &o, NULL), TY_OK);
    cr_assert_str_eq(o.bound_by, "decoding");
    check_near(o.samples_per_s, 1000, "decoding");
    check_near(o.level_share[1], 0.3, "disk");
    q.input.cores = 1000;
    cr_assert_eq(ty_input_rate(&q, &o, NULL), TY_OK);
    cr_assert_str_eq(o.bound_by, "store");
    check_near(o.samples_per_s, 0.1e9 / (1e5 * 0.6), "store");
    check_near(o.store_bytes, 6e4, "bytes of the store");
    q.input.data_bytes = 400;
    cr_assert_eq(ty_input_rate(&q, &o, NULL), TY_OK);
    cr_assert_str_eq(o.bound_by, "disk");
    q.input.is_first_epoch = true;
    cr_assert_eq(ty_input_rate(&q, &o, NULL), TY_OK);
    check_near(o.level_share[2], 1, "the first epoch reads all of the store");
    check_near(o.samples_per_s, 1000, "the first epoch");
    q.input.is_first_epoch = false;
    q.level_count = 2;
    q.input.data_bytes = 401;
    cr_assert_eq(ty_input_rate(&q, &o, NULL), TY_EINVAL);
}

/* n hosts each read V from one store of rate R: n V / R, until a single host's rate limits it. */
Test(input, hosts_share_a_store)
{
    for (uint32_t hosts = 1; hosts <= 64; hosts *= 2) {
        ty_storage nas = store;
        ty_input_question q = {.levels = &nas,
                               .level_count = 1,
                               .sample_bytes = 1e5,
                               .hosts = hosts,
                               .readers = 4 * hosts,
                               .host_readers = 4};
        ty_input_forecast o;
        nas.host_bytes_per_s = 0.1e9 / 8;
        cr_assert_eq(ty_input_rate(&q, &o, NULL), TY_OK);
        check_near(1 / o.samples_per_s, fmax(4.0 * hosts * 1e5 / 0.1e9, 4 * 1e5 / (0.1e9 / 8)),
                   "seconds of a sample");
        check_near(o.store_limit_bytes_per_s, 0.1e9 / 8 / 4, "what a reader draws");
        /* Concurrent requests over their latency also limit the rate. */
        nas.host_bytes_per_s = 0;
        nas.requests = 5;
        nas.latency_s = 0.04;
        cr_assert_eq(ty_input_rate(&q, &o, NULL), TY_OK);
        check_near(1 / o.samples_per_s, fmax(4.0 * hosts * 1e5 / 0.1e9, 4 * 0.04 / 5), "requests");
        nas.request_bytes = 2e5; /* two samples each */
        cr_assert_eq(ty_input_rate(&q, &o, NULL), TY_OK);
        check_near(1 / o.samples_per_s, fmax(4.0 * hosts * 1e5 / 0.1e9, 4 * 0.02 / 5), "twice");
    }
}

/* If a host reads only its own samples, its cache serves the cached ones every time. If it draws
 * from all samples, the cache serves the share of them that it holds. */
Test(input, a_cache_serves_what_it_holds)
{
    const ty_storage levels[] = {disk, store};
    ty_input_question q = {.levels = levels,
                           .level_count = 2,
                           .input = {.data_bytes = 1200},
                           .sample_bytes = 1e5,
                           .hosts = 4,
                           .readers = 4,
                           .host_readers = 1};
    ty_input_forecast o;

    cr_assert_eq(ty_input_rate(&q, &o, NULL), TY_OK);
    check_near(o.level_share[0], 0.25, "of all samples");
    q.input.shuffle = TY_SHUFFLE_HOST;
    cr_assert_eq(ty_input_rate(&q, &o, NULL), TY_OK);
    check_near(o.level_share[0], 1, "of its own");
    cr_assert_str_eq(o.bound_by, "disk");
    check_near(o.samples_per_s, 1e4, "of its own");
    q.input.data_bytes = 0;
    cr_assert_eq(ty_input_rate(&q, &o, NULL), TY_OK);
    check_near(o.level_share[1], 1, "data of unknown size are in no cache");
}

Test(input, nothing_said_limits_nothing)
{
    ty_input_question q = {.sample_bytes = 1, .hosts = 1, .readers = 1, .host_readers = 1};
    ty_input_forecast o;

    cr_assert_eq(ty_input_rate(&q, &o, NULL), TY_OK);
    cr_assert(isinf(o.samples_per_s) && o.bound_by == NULL);
    q.hosts = 0;
    cr_assert_eq(ty_input_rate(&q, &o, NULL), TY_EINVAL);
}

Test(input, words_are_read_and_written)
{
    ty_input input = {0}, again = {0}, read = {0};
    ty_text words = {0}, json = {0};
    ty_json_writer writer = ty_json_writer_on(&json);
    ty_json_document *document = NULL;
    const ty_json *value = NULL;
    ty_error error = {0};

    cr_assert_not(ty_input_is_said(&input));
    cr_assert_eq(ty_input_read("data=1.3TB,decode=250.5/s,cores=32,epoch=first,shuffle=host",
                               &input, &error),
                 TY_OK, "%s", error.message);
    check_near(input.data_bytes, 1.3e12, "data");
    check_near(input.decode_samples_per_s, 250.5, "decode");
    cr_assert(input.cores == 32 && input.is_first_epoch && input.shuffle == TY_SHUFFLE_HOST);
    ty_input_words(&input, &words);
    cr_assert_eq(ty_input_read(words.data, &again, &error), TY_OK, "%s", error.message);
    cr_assert_eq(memcmp(&input, &again, sizeof input), 0, "%s", words.data);
    ty_json_open(&writer, NULL, '{');
    ty_input_to_json(&input, &writer, "input");
    ty_json_close(&writer, '}');
    cr_assert_eq(ty_json_parse(json.data, json.length, "input.json", &document, &error), TY_OK);
    cr_assert_eq(ty_json_object(ty_json_root(document), "input", &value, &error), TY_OK);
    cr_assert_eq(ty_record_read_all(value, &ty_input_record, &read, NULL, &error), TY_OK, "%s",
                 error.message);
    cr_assert_eq(memcmp(&input, &read, sizeof input), 0);
    cr_assert_eq(ty_input_read("epoch=later", &input, &error), TY_OK, "what is said last counts");
    cr_assert_not(input.is_first_epoch);
    ty_json_free(document);
    ty_text_clear(&json);
    ty_text_clear(&words);
}

Test(input, what_is_wrong_with_words)
{
    static const struct {
        const char *text, *part;
    } rows[] = {
        {"data", "--input: found 'data', expected data="},
        {"", "--input: found ''"},
        {"data=0", "--input data: found '0', expected a size"},
        {"data=lots", "--input data: found \"lots\""},
        {"decode=0", "--input decode: found '0', expected samples per second"},
        {"decode=25GB/s", "--input decode: found '25GB/s'"},
        {"decode=-1", "--input decode: found '-1'"},
        {"cores=0", "--input cores: found \"0\""},
        {"epoch=second", "--input epoch: found 'second', expected first or later"},
        {"shuffle=none", "--input shuffle: found 'none', expected global or host"},
        {"data=1GB,decod=2", "did you mean decode?"},
    };

    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        ty_input input = {.cores = 7};
        ty_error error = {0};
        cr_expect_eq(ty_input_read(rows[i].text, &input, &error), TY_EINVAL, "%s", rows[i].text);
        cr_expect(strstr(error.message, rows[i].part) != NULL, "%s: %s", rows[i].text,
                  error.message);
        cr_expect(input.cores == 7 && !(input.data_bytes > 0), "%s: changed", rows[i].text);
    }
}
