/* An accepted framework file is the same after a round trip and after copying. */
#include "fuzz.h"
#include "ty_base.h"
#include "ty_stack.h"

#include <string.h>

static ty_stack *read_stack(const char *bytes, size_t length, ty_error *error)
{
    ty_json_document *document = NULL;
    ty_stack *stack = NULL;

    if (ty_json_parse(bytes, length, "input", &document, error) == TY_OK)
        MUST((ty_stack_from_json(ty_json_root(document), &stack, error) == TY_OK) ==
             (stack != NULL));
    ty_json_free(document);
    return stack;
}

static char *text_of(const ty_stack *stack)
{
    ty_text text = {0};
    ty_json_writer writer = ty_json_writer_on(&text);
    char *out = NULL;

    ty_stack_to_json(stack, &writer, NULL);
    MUST(ty_text_take(&text, &out, NULL) == TY_OK);
    return out;
}

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t length)
{
    ty_error error = {0};
    ty_stack *first = read_stack((const char *)bytes, length, &error), *second, *copy = NULL;
    char *before, *after, *copied;

    if (first == NULL) {
        MUST(error.status == TY_EPARSE && strstr(error.message, "expected") != NULL);
        return 0;
    }
    for (uint32_t i = 0; ty_stack_constant_at(i) != NULL; i++) {
        const ty_stack_constant *c = ty_stack_constant_at(i);
        const double value = *ty_stack_value(first, c);
        MUST((value >= c->minimum && value <= c->maximum) ||
             (c->may_be_of_device && value == TY_OF_DEVICE));
    }
    before = text_of(first);
    second = read_stack(before, strlen(before), &error);
    MUST(second != NULL);
    MUST(ty_stack_copy(second, &copy, &error) == TY_OK);
    after = text_of(second);
    copied = text_of(copy);
    MUST(strcmp(before, after) == 0 && strcmp(before, copied) == 0);
    ty_free(before);
    ty_free(after);
    ty_free(copied);
    ty_stack_free(first);
    ty_stack_free(second);
    ty_stack_free(copy);
    return 0;
}
