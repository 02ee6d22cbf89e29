/* Accepted JSON survives a round trip; a refusal has a reason. */
#include "fuzz.h"
#include "ty_base.h"
#include "ty_json.h"

#include <string.h>

/* Every value supports every query. */
static void visit(const ty_json *value)
{
    char place[TY_JSON_PLACE_SIZE];
    ty_error error = {0};
    double number = 0.0;
    uint64_t integer = 0;

    ty_json_place(value, place);
    MUST(strlen(place) < sizeof place);
    if (ty_json_as_number(value, 0.0, 1.0, &number, &error) == TY_OK)
        MUST(ty_json_is_number(value) && number >= 0.0 && number <= 1.0);
    if (ty_json_as_uint64(value, 1, 100, &integer, &error) == TY_OK)
        MUST(integer >= 1 && integer <= 100);
    (void)ty_json_has(value, "schema");
    MUST(ty_json_end(value, &error) == TY_OK ||
         (ty_json_is_object(value) && ty_json_size(value) > 0));
    for (size_t i = 0; i < ty_json_size(value); i++)
        visit(ty_json_at(value, i));
    MUST(ty_json_end(value, &error) == TY_OK);
}

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t length)
{
    ty_json_document *first = NULL, *second = NULL;
    ty_error error = {0};
    char *text = NULL, *again = NULL;

    if (ty_json_parse((const char *)bytes, length, "input", &first, &error) != TY_OK) {
        MUST(first == NULL && error.status == TY_EPARSE);
        MUST(strstr(error.message, "expected") != NULL);
        return 0;
    }
    MUST(ty_json_text(ty_json_root(first), &text, &error) == TY_OK);
    MUST(ty_json_parse(text, strlen(text), "text", &second, &error) == TY_OK);
    MUST(ty_json_text(ty_json_root(second), &again, &error) == TY_OK);
    MUST(strcmp(text, again) == 0);
    visit(ty_json_root(second));
    ty_free(text);
    ty_free(again);
    ty_json_free(first);
    ty_json_free(second);
    return 0;
}
