/* An accepted plan is valid and survives a round trip; its stage replicas and buckets can be
 * queried. */
#include "fuzz.h"
#include "ty_base.h"
#include "ty_plan.h"

#include <string.h>

static ty_plan *read_plan(const char *bytes, size_t length, ty_error *error)
{
    ty_json_document *document = NULL;
    ty_plan *plan = NULL;

    if (ty_json_parse(bytes, length, "input", &document, error) == TY_OK)
        MUST((ty_plan_from_json(ty_json_root(document), &plan, error) == TY_OK) == (plan != NULL));
    ty_json_free(document);
    return plan;
}

static void ask_everything(const ty_plan *plan)
{
    ty_error error = {0};
    const uint32_t stage_replicas = ty_plan_stage_replica_count(plan);
    uint32_t *members = ty_alloc(stage_replicas, sizeof *members);

    MUST(members != NULL);
    MUST(ty_plan_check(plan, "input", &error) == TY_OK);
    for (uint32_t stage_replica = 0; stage_replica < stage_replicas && stage_replica < 100;
         stage_replica++) {
        uint32_t stage = ty_plan_stage_of_replica(plan, stage_replica);
        MUST(stage_replica >= ty_plan_first_replica(plan, stage));
        MUST(stage_replica < ty_plan_first_replica(plan, stage + 1));
        MUST(ty_plan_device_of_replica(plan, stage_replica) ==
             plan->stages[stage].devices[stage_replica - ty_plan_first_replica(plan, stage)]);
    }
    for (uint32_t b = 0; b < plan->bucket_count; b++) {
        const ty_bucket *bucket = &plan->buckets[b];
        uint32_t count = ty_bucket_members(plan, bucket, members);
        MUST(count >= 1 && count <= stage_replicas &&
             count == ty_bucket_member_count(plan, bucket));
        for (uint32_t i = 1; i < count; i++)
            MUST(members[i] > members[i - 1]);
        MUST(ty_bucket_exchange_bytes(plan, bucket) > 0);
        MUST(bucket->gradient_bytes == ty_bucket_gradient_bytes(plan, bucket));
    }
    ty_free(members);
}

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t length)
{
    ty_error error = {0};
    ty_plan *first = read_plan((const char *)bytes, length, &error), *second, *copy = NULL;
    ty_text text = {0};
    ty_json_writer writer = ty_json_writer_on(&text);
    ty_digest before, after;

    if (first == NULL) {
        MUST(error.status == TY_EPARSE);
        MUST(strstr(error.message, "expected") != NULL ||
             strstr(error.message, "was made for another") != NULL);
        return 0;
    }
    ask_everything(first);
    ty_plan_to_json(first, &writer, NULL);
    second = read_plan(text.data, text.length, &error);
    MUST(second != NULL);
    MUST(ty_plan_copy(first, &copy, &error) == TY_OK);
    MUST(ty_plan_digest(first, &before, &error) == TY_OK);
    MUST(ty_plan_digest(second, &after, &error) == TY_OK);
    MUST(strcmp(before.hex, after.hex) == 0);
    MUST(ty_plan_digest(copy, &after, &error) == TY_OK);
    MUST(strcmp(before.hex, after.hex) == 0);
    ty_text_clear(&text);
    ty_plan_free(first);
    ty_plan_free(second);
    ty_plan_free(copy);
    return 0;
}
