/* Strict reading and exact writing of JSON. */
#include "ty_base.h"
#include "ty_json.h"

#include <cjson/cJSON.h>
#include <criterion/criterion.h>
#include <float.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

static ty_json_document *parse(const char *text)
{
    ty_json_document *document = NULL;
    ty_error error = {0};
    cr_assert_eq(ty_json_parse(text, strlen(text), "f.json", &document, &error), TY_OK, "%s: %s",
                 text, error.message);
    return document;
}

static void expect_text(const char *text, const char *expected)
{
    ty_json_document *document = parse(text);
    char *out = NULL;
    cr_assert_eq(ty_json_text(ty_json_root(document), &out, NULL), TY_OK);
    cr_expect_str_eq(out, expected, "%s", text);
    ty_free(out);
    ty_json_free(document);
}

Test(json, what_is_read)
{
    static const struct {
        const char *text, *expected;
    } rows[] = {
        {" [ ] ", "[]"},
        {"{}\r\n\t", "{}"},
        {"null", "null"},
        {"\"x\"", "\"x\""},
        {"-0", "-0"},
        {"0.10", "0.1"},
        {"1E+2", "100"},
        {"1e-400", "0"},
        {"[1e5,-1.5e-3,9007199254740993]", "[100000, -0.0015, 9007199254740992]"},
        {"[true,false,null,{\"a\":[{}]}]", "[true, false, null, {\"a\": [{}]}]"},
        {"\"\\\"\\\\\\/\\b\\f\\n\\r\\t\\u001f\"", "\"\\\"\\\\/\\b\\f\\n\\r\\t\\u001f\""},
        {"\"\\u00e9\\u20AC\\ud83d\\ude00\"", "\"\xc3\xa9\xe2\x82\xac\xf0\x9f\x98\x80\""},
        {"\"\x7f\xf4\x8f\xbf\xbf\"", "\"\x7f\xf4\x8f\xbf\xbf\""},
        {"{\"\":1,\"A\":2,\"a\":3}", "{\"\": 1, \"A\": 2, \"a\": 3}"},
        {"123456789012345678901234567890123456789012345678901234567890", "1.2345678901234567e59"},
    };
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++)
        expect_text(rows[i].text, rows[i].expected);
}

/* RFC 8259 allows none of these; cJSON accepts the marked ones. */
Test(json, what_is_refused)
{
    static const struct {
        const char *text, *message;
    } rows[] = {
        {"", "f.json: line 1, column 1: found the end of the text, expected a value"},
        {"[1] x", "column 5: found 'x', expected the end of the text"}, /* cJSON_Parse */
        {"[]\n\n  {}", "line 3, column 3: found '{', expected the end of the text"},
        {"[1,]", "column 4: found ']', expected a value"},
        {"[,1]", "expected a value"},
        {"[1 2]", "expected ',' or ']'"},
        {"[1}", "expected ',' or ']'"},
        {"{\"a\":1", "expected ',' or '}'"},
        {"{\"a\":1,}", "expected a key in quotes"},
        {"{a:1}", "expected a key in quotes"},
        {"{\"a\" 1}", "expected ':'"},
        {"{\"a\":}", "expected a value"},
        {"01", "no digit after a leading zero"}, /* cJSON */
        {"-01", "no digit after a leading zero"},
        {"1.", "expected a digit"}, /* cJSON */
        {".5", "expected a value"},
        {"+1", "expected a value"},
        {"1e", "expected a digit"},
        {"1e+", "expected a digit"},
        {"-", "expected a digit"},
        {"0x10", "expected the end"},
        {"[{\"x\": NaN}]", "f.json:/0/x: found NaN, Infinity or"},
        {"{\"x\": [0, -Infinity]}", "f.json:/x/1: found NaN, Infinity or"},
        {"Infinity", "f.json: found NaN, Infinity or"},
        {"-Infinite", "expected a value"},
        {"Nan", "expected a value"},
        {"nul", "expected a value"},
        {"trueish", "expected the end"},
        {"[\v1]", "found byte 0x0b, expected a value"}, /* cJSON */
        {"\"a", "expected a closing quote"},
        {"\"a\nb\"", "no control character in a string"}, /* cJSON */
        {"\"\\x\"", "after a backslash"},
        {"\"\\u12g4\"", "four hexadecimal digits"},
        {"\"\\u0000\"", "no NUL character"}, /* cJSON cuts the string there */
        {"\"\\ud800\"", "a surrogate pair"},
        {"\"\\ud800\\u0041\"", "second half of a surrogate pair"},
        {"\"\\udc00\"", "a surrogate pair"},
        {"\"\xc0\x80\"", "valid UTF-8"}, /* these four: cJSON */
        {"\"\xed\xa0\x80\"", "valid UTF-8"},
        {"\"\xf4\x90\x80\x80\"", "valid UTF-8"},
        {"\"\xe2\x82\"", "valid UTF-8"},
        {"1234567890123456789012345678901234567890123456789012345678901", "at most 60 characters"},
        {"{\"a\":1,\"b\":2,\"a\":3}",
         "f.json:/a: found 3, expected each key only once"},              /* cJSON */
        {"[0,{\"x\":[1e400]}]", "f.json:/1/x/0: found NaN, Infinity or"}, /* cJSON */
        {"-1e400", "f.json: found NaN, Infinity or a number beyond"},
    };

    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        ty_json_document *document = NULL;
        ty_error error = {0};
        ty_status status =
            ty_json_parse(rows[i].text, strlen(rows[i].text), "f.json", &document, &error);
        cr_expect_eq(status, TY_EPARSE, "taken: %s", rows[i].text);
        cr_expect_null(document);
        cr_expect(strstr(error.message, rows[i].message) != NULL, "%s: %s", rows[i].text,
                  error.message);
    }
}

Test(json, nul_bytes_are_refused)
{
    ty_json_document *document = NULL;
    ty_error error = {0};

    cr_assert_eq(ty_json_parse("[1]\0", 4, "f", &document, &error), TY_EPARSE);
    cr_assert_eq(ty_json_parse("\"a\0b\"", 5, "f", &document, &error), TY_EPARSE);
    cr_assert_eq(ty_json_parse("\0", 1, "f", &document, &error), TY_EPARSE);
    cr_assert(strstr(error.message, "found byte 0x00") != NULL, "%s", error.message);
}

Test(json, nesting_up_to_two_hundred)
{
    char text[500];
    ty_json_document *document = NULL;
    ty_error error = {0};

    memset(text, '[', 201);
    memset(text + 201, ']', 201);
    cr_assert_eq(ty_json_parse(text + 1, 400, "f", &document, &error), TY_OK, "%s", error.message);
    ty_json_free(document);
    document = NULL;
    cr_assert_eq(ty_json_parse(text, 402, "f", &document, &error), TY_EPARSE);
    cr_assert(strstr(error.message, "column 201: found '[', expected at most 200 levels") != NULL,
              "%s", error.message);
}

static const char sample[] =
    "{\"n\": -3, \"i\": 7, \"half\": 0.5, \"big\": 9007199254740992, \"t\": true,"
    " \"s\": \"word\", \"empty\": \"\", \"list\": [1, {\"a/b\": {\"c~d\": [0, \"x\"]}}],"
    " \"o\": {\"k\": 1}, \"nothing\": null, \"kind\": \"relo\","
    " \"long\": \"0123456789012345678901234567890123456789012345\"}";

/* Every typed member, one call each, all with an error. */
Test(json, members_of_the_wrong_kind)
{
    static const char *const kinds[] = {"relu", "gelu", "attention"};
    ty_json_document *document = parse(sample);
    const ty_json *root = ty_json_root(document), *value = NULL;
    const char *string = NULL;
    ty_error error = {0};
    double number = 42.0;
    uint64_t wide = 42;
    uint32_t narrow = 42;
    bool flag = false;
    int choice = 42;

#define FAILS(call, text)                                                                          \
    do {                                                                                           \
        cr_expect_eq(call, TY_EPARSE, #call);                                                      \
        cr_expect_str_eq(error.message, text);                                                     \
    } while (0)
    FAILS(ty_json_number(root, "halv", 0, 1, &number, &error),
          "f.json:/halv: found only \"half\", expected a number from 0 to 1");
    FAILS(ty_json_number(root, "n", 0, 9.5, &number, &error),
          "f.json:/n: found -3, expected a number from 0 to 9.5");
    FAILS(ty_json_number(root, "n", DBL_MIN, HUGE_VAL, &number, &error),
          "f.json:/n: found -3, expected a number > 0");
    FAILS(ty_json_number(root, "i", -HUGE_VAL, 6, &number, &error),
          "f.json:/i: found 7, expected a number <= 6");
    FAILS(ty_json_number(root, "s", -HUGE_VAL, HUGE_VAL, &number, &error),
          "f.json:/s: found \"word\", expected a number");
    FAILS(ty_json_number(root, "absent", 0, HUGE_VAL, &number, &error),
          "f.json:/absent: found nothing, expected a number >= 0");
    FAILS(ty_json_uint32(root, "n", 1, 9, &narrow, &error),
          "f.json:/n: found -3, expected an integer from 1 to 9");
    FAILS(ty_json_uint32(root, "half", 0, 9, &narrow, &error),
          "f.json:/half: found 0.5, expected an integer from 0 to 9");
    FAILS(ty_json_uint64(root, "big", 0, UINT64_MAX, &wide, &error),
          "f.json:/big: found 9007199254740992, expected an integer from 0 to 9007199254740991");
    FAILS(ty_json_bool(root, "i", &flag, &error), "f.json:/i: found 7, expected true or false");
    FAILS(ty_json_string(root, "t", &string, &error),
          "f.json:/t: found true, expected a string that is not empty");
    FAILS(ty_json_string(root, "empty", &string, &error),
          "f.json:/empty: found \"\", expected a string that is not empty");
    FAILS(ty_json_enum(root, "kind", kinds, 3, &choice, &error),
          "f.json:/kind: found \"relo\", expected \"relu\"?");
    FAILS(ty_json_enum(root, "s", kinds, 3, &choice, &error),
          "f.json:/s: found \"word\", expected \"relu\", \"gelu\" or \"attention\"");
    FAILS(ty_json_object(root, "list", &value, &error),
          "f.json:/list: found an array of 2, expected an object");
    FAILS(ty_json_array(root, "o", 0, UINT32_MAX, &value, &error),
          "f.json:/o: found an object, expected an array of at least 0");
    FAILS(ty_json_array(root, "list", 3, 4, &value, &error),
          "f.json:/list: found an array of 2, expected an array of 3 to 4");
    FAILS(ty_json_array(root, "list", 1, 1, &value, &error),
          "f.json:/list: found an array of 2, expected an array of 1");
    FAILS(ty_json_number(root, "nothing", 0, 1, &number, &error),
          "f.json:/nothing: found null, expected a number from 0 to 1");
    FAILS(ty_json_number(root, "long", 0, 1, &number, &error),
          "f.json:/long: found \"0123456789012345678901234567890123456789...\", "
          "expected a number from 0 to 1");
    FAILS(ty_json_schema(root, "trainyard.plan/1", &error),
          "f.json:/schema: found nothing, expected \"trainyard.plan/1\"");
    cr_assert_eq(ty_json_array(root, "list", 0, 2, &value, &error), TY_OK);
    FAILS(ty_json_number(value, "x", 0, 1, &number, &error),
          "f.json:/list: found an array of 2, expected an object");
    cr_expect(number == 42.0 && wide == 42 && narrow == 42 && choice == 42 && string == NULL,
              "results are untouched on failure");
    ty_json_free(document);
}

Test(json, pointers_are_escaped)
{
    ty_json_document *document = parse(sample);
    const ty_json *value = ty_json_root(document);
    char place[TY_JSON_PLACE_SIZE];
    ty_error error = {0};
    uint32_t number = 0;

    ty_json_place(value, place);
    cr_expect_str_eq(place, "f.json:");
    cr_assert_eq(ty_json_array(value, "list", 2, 2, &value, &error), TY_OK);
    value = ty_json_at(value, 1);
    cr_assert_eq(ty_json_object(value, "a/b", &value, &error), TY_OK);
    cr_assert_eq(ty_json_array(value, "c~d", 2, 2, &value, &error), TY_OK);
    cr_assert_eq(ty_json_as_uint32(ty_json_at(value, 0), 0, 0, &number, &error), TY_OK);
    cr_assert_eq(ty_json_as_uint32(ty_json_at(value, 1), 0, 0, &number, &error), TY_EPARSE);
    cr_expect_str_eq(error.message, "f.json:/list/1/a~1b/c~0d/1: found \"x\", expected an integer "
                                    "from 0 to 0");
    ty_json_free(document);
}

Test(json, long_names_and_pointers_are_cut_off)
{
    char text[2100] = "{\"", name[2000];
    ty_json_document *document = NULL;
    ty_error error = {0};

    memset(text + 2, 'k', 2000);
    strcpy(text + 2002, "\":1}");
    memset(name, 'f', sizeof name - 1);
    name[sizeof name - 1] = '\0';
    cr_assert_eq(ty_json_parse(text, strlen(text), name, &document, &error), TY_OK);
    cr_assert_eq(ty_json_end(ty_json_root(document), &error), TY_EPARSE);
    cr_expect_lt(strlen(error.message), sizeof error.message - 1);
    cr_expect(strstr(error.message, "expected no such member") != NULL, "%s", error.message);
    ty_json_free(document);
}

Test(json, values_are_read)
{
    static const char *const kinds[] = {"noun", "word"};
    ty_json_document *document = parse(sample);
    const ty_json *root = ty_json_root(document), *list = NULL;
    const char *string = NULL;
    double number = 0;
    uint32_t narrow = 0;
    bool flag = false;
    int choice = 0;

    cr_assert_eq(ty_json_number(root, "half", 0, 1, &number, NULL), TY_OK);
    cr_assert_eq(ty_json_uint32(root, "i", 7, 7, &narrow, NULL), TY_OK);
    cr_assert_eq(ty_json_bool(root, "t", &flag, NULL), TY_OK);
    cr_assert_eq(ty_json_string(root, "s", &string, NULL), TY_OK);
    cr_assert_eq(ty_json_enum(root, "s", kinds, 2, &choice, NULL), TY_OK);
    cr_assert_eq(ty_json_array(root, "list", 2, 2, &list, NULL), TY_OK);
    cr_expect(number == 0.5 && narrow == 7 && flag && choice == 1);
    cr_expect_str_eq(string, "word");
    cr_expect_eq(ty_json_size(list), 2);
    cr_expect(ty_json_is_number(ty_json_at(list, 0)) && ty_json_is_object(ty_json_at(list, 1)));
    cr_expect_str_eq(ty_json_key(ty_json_at(root, 0)), "n");
    cr_expect(ty_json_has(root, "o") && !ty_json_has(root, "nothing") && !ty_json_has(root, "O"));
    ty_json_free(document);
}

/* Names from files are printed on terminals and written into launch files. */
Test(json, strings_are_printable)
{
    static const char *const bad[] = {"\\n",     "\\t",     "\\u001b", "\\u007f",      "\\u0085",
                                      "\\u2028", "\\u2029", "\\u202e", "\xe2\x80\xa8", "\x7f"};

    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++) {
        ty_json_document *document = NULL;
        ty_error error = {0};
        const char *out = NULL;
        char text[64];
        snprintf(text, sizeof text, "{\"name\": \"a%sb\"}", bad[i]);
        cr_assert_eq(ty_json_parse(text, strlen(text), "t", &document, &error), TY_OK, "%s",
                     error.message);
        cr_expect_eq(ty_json_string(ty_json_root(document), "name", &out, &error), TY_EPARSE,
                     "row %zu", i);
        cr_expect_not_null(strstr(error.message, "t:/name: "), "%s", error.message);
        cr_expect_eq(ty_json_lines(ty_json_root(document), "name", &out, &error), TY_OK);
        ty_json_free(document);
    }
}

/* Some editors begin files with a byte order mark; a second one is content. */
Test(json, a_byte_order_mark_is_ignored)
{
    ty_json_document *document = NULL;
    ty_error error = {0};

    cr_assert_eq(ty_json_parse("\xef\xbb\xbf[]", 5, "t", &document, &error), TY_OK, "%s",
                 error.message);
    ty_json_free(document);
    document = NULL;
    cr_assert_eq(ty_json_parse("\xef\xbb\xbf\xef\xbb\xbf[]", 8, "t", &document, &error), TY_EPARSE);
    cr_assert_eq(ty_json_parse("\xef\xbb\xbf", 3, "t", &document, &error), TY_EPARSE);
}

Test(json, unread_members_are_errors)
{
    ty_json_document *document =
        parse("{\"name\": 1, \"is_frosen\": 2, \"n\": null, \"note\": {}}");
    const ty_json *root = ty_json_root(document);
    ty_error error = {0};
    uint32_t number;

    cr_expect_not(ty_json_has(root, "is_frozen"));
    cr_expect_not(ty_json_has(root, "tied_to"));
    cr_expect_not(ty_json_has(root, "n"), "null counts as absent");
    cr_assert_eq(ty_json_uint32(root, "name", 1, 1, &number, &error), TY_OK);
    cr_assert_eq(ty_json_end(root, &error), TY_EPARSE);
    cr_expect_str_eq(error.message,
                     "f.json:/is_frosen: found an unknown key, expected \"is_frozen\"?");
    cr_assert_eq(ty_json_uint32(root, "is_frosen", 2, 2, &number, &error), TY_OK);
    cr_assert_eq(ty_json_end(root, &error), TY_EPARSE);
    cr_expect_str_eq(error.message, "f.json:/note: found an unknown key, expected no such member");
    ty_json_ignore(root, "note");
    cr_assert_eq(ty_json_end(root, &error), TY_OK, "%s", error.message);
    ty_json_free(document);
}

Test(json, unread_members_are_listed)
{
    ty_json_document *document = parse("{\"a\": 1, \"b\": {\"c\": 2}, \"d\": null, \"e\": 3}");
    const ty_json *root = ty_json_root(document);
    ty_error error = {0};
    uint32_t number;

    cr_assert_eq(ty_json_uint32(root, "e", 3, 3, &number, &error), TY_OK);
    cr_expect_not(ty_json_has(root, "d"));
    cr_expect_str_eq(ty_json_next_unread(root), "a");
    cr_expect_str_eq(ty_json_next_unread(root), "b");
    cr_expect_null(ty_json_next_unread(root));
    cr_assert_eq(ty_json_end(root, &error), TY_OK, "%s", error.message);
    cr_expect_null(ty_json_next_unread(ty_json_at(root, 0)), "a number has no members");
    ty_json_free(document);
}

Test(json, more_optional_keys_than_are_remembered)
{
    ty_json_document *document = parse("{\"key_number_99\": 1}");
    const ty_json *root = ty_json_root(document);
    ty_error error = {0};
    char key[32];

    for (int i = 100; i < 300; i++) {
        snprintf(key, sizeof key, "key_number_%d", i);
        cr_assert_not(ty_json_has(root, key));
    }
    cr_assert_eq(ty_json_end(root, &error), TY_EPARSE);
    cr_expect(strstr(error.message, "expected \"key_number_") != NULL, "%s", error.message);
    ty_json_free(document);
}

Test(json, writing)
{
    ty_text text = {0};
    ty_json_writer w = ty_json_writer_on(&text);

    ty_json_open(&w, NULL, '{');
    ty_json_put_string(&w, "s", "a\"\\\n\x01\xc3\xa9");
    ty_json_put_number(&w, "x", 0.1 + 0.2);
    ty_json_put_uint(&w, "u", 9007199254740991u);
    ty_json_put_bool(&w, "b", false);
    ty_json_put_null(&w, "z");
    ty_json_open(&w, "rows", '[');
    for (int i = 0; i < 2; i++) {
        ty_json_open_flat(&w, NULL, '{');
        ty_json_open(&w, "v", '[');
        ty_json_put_uint(&w, NULL, 1);
        ty_json_put_raw(&w, NULL, "{\"r\": 2}");
        ty_json_close(&w, ']');
        ty_json_put_bool(&w, "t", true);
        ty_json_close(&w, '}');
    }
    ty_json_close(&w, ']');
    ty_json_open(&w, "none", '{');
    ty_json_close(&w, '}');
    ty_json_open_flat(&w, "flat", '[');
    ty_json_close(&w, ']');
    ty_json_close(&w, '}');
    cr_assert_eq(text.failed, TY_OK);
    cr_expect_str_eq(text.data, "{\n"
                                "  \"s\": \"a\\\"\\\\\\n\\u0001\xc3\xa9\",\n"
                                "  \"x\": 0.30000000000000004,\n"
                                "  \"u\": 9007199254740991,\n"
                                "  \"b\": false,\n"
                                "  \"z\": null,\n"
                                "  \"rows\": [\n"
                                "    {\"v\": [1, {\"r\": 2}], \"t\": true},\n"
                                "    {\"v\": [1, {\"r\": 2}], \"t\": true}\n"
                                "  ],\n"
                                "  \"none\": {},\n"
                                "  \"flat\": []\n"
                                "}");
    ty_text_clear(&text);
}

/* A document on one line equals what a reader parses from it, large integers included. */
Test(json, compact_writing_is_the_reader_s_text)
{
    ty_text text = {0};
    ty_json_writer w = ty_json_writer_compact_on(&text);
    ty_json_document *document = NULL;
    char *again = NULL;

    ty_json_open(&w, NULL, '{');
    ty_json_put_string(&w, "text", "plain \"quoted\" \\ \n \t \x01 \x7f \xc3\xa4");
    ty_json_put_uint(&w, "large", 1234567890123456);
    ty_json_put_uint(&w, "power", 1000000000000000);
    ty_json_put_number(&w, "tenth", 0.1);
    ty_json_open(&w, "rows", '[');
    ty_json_open_flat(&w, NULL, '{');
    ty_json_put_bool(&w, "is", true);
    ty_json_close(&w, '}');
    ty_json_open(&w, NULL, '[');
    ty_json_close(&w, ']');
    ty_json_close(&w, ']');
    ty_json_put_null(&w, "nothing");
    ty_json_close(&w, '}');
    cr_assert_eq(ty_json_parse(text.data, text.length, "it", &document, NULL), TY_OK);
    cr_assert_eq(ty_json_text(ty_json_root(document), &again, NULL), TY_OK);
    cr_expect_str_eq(text.data, again);
    ty_free(again);
    ty_json_free(document);
    ty_text_clear(&text);
}

static void put_nan(ty_json_writer *w)
{
    ty_json_put_number(w, NULL, (double)NAN);
}

static void put_infinity(ty_json_writer *w)
{
    ty_json_put_number(w, NULL, -HUGE_VAL);
}

static void put_large(ty_json_writer *w)
{
    ty_json_put_uint(w, NULL, (uint64_t)1 << 53);
}

static void put_bad_text(ty_json_writer *w)
{
    ty_json_put_string(w, NULL, "\xff");
}

Test(json, what_json_cannot_hold_fails_the_text)
{
    static void (*const puts[])(ty_json_writer *) = {put_nan, put_infinity, put_large,
                                                     put_bad_text};
    for (size_t i = 0; i < 4; i++) {
        ty_text text = {0};
        ty_json_writer w = ty_json_writer_on(&text);
        ty_error error = {0};
        char *out = NULL;
        ty_json_open(&w, NULL, '[');
        puts[i](&w);
        ty_json_close(&w, ']');
        cr_expect_eq(ty_text_take(&text, &out, &error), TY_EINVAL, "case %zu", i);
        cr_expect_null(out);
        cr_expect(strstr(error.message, "no text form") != NULL, "%s", error.message);
    }
}

Test(json, a_file_and_its_absence)
{
    ty_json_document *document = NULL;
    ty_error error = {0};

    cr_assert_eq(ty_json_load(TY_CORPUS "/json/nested.json", &document, &error), TY_OK, "%s",
                 error.message);
    ty_json_free(document);
    cr_assert_eq(ty_json_load(TY_CORPUS "/json/twice.json", &document, &error), TY_EPARSE);
    cr_expect(strstr(error.message, TY_CORPUS "/json/twice.json:/a: found 3") == error.message,
              "%s", error.message);
    cr_assert_eq(ty_json_load("/no/such/file", &document, &error), TY_EIO);
}

static void *counted_malloc(size_t size)
{
    return ty_alloc(size, 1);
}

Test(json, every_allocation_may_fail)
{
    cJSON_Hooks hooks = {counted_malloc, ty_free}; /* so that cJSON's count also differs */
    ty_json_document *document = NULL;
    ty_error error = {0};
    ty_status status = TY_ENOMEM;
    long n = 0;
    char *out = NULL;

    cJSON_InitHooks(&hooks);
    while (status != TY_OK) {
        ty_memory_fail_after(++n);
        status = ty_json_parse(sample, sizeof sample - 1, "f", &document, &error);
        ty_memory_fail_after(0);
        cr_assert(status == TY_OK || status == TY_ENOMEM, "allocation %ld: %s", n, error.message);
        cr_assert_lt(n, 1000);
    }
    cr_assert_gt(n, 30, "cJSON's allocations were among them");
    ty_memory_fail_after(1);
    cr_expect_not(ty_json_has(ty_json_root(document), "absent"), "needs no memory to answer");
    cr_expect_eq(ty_json_text(ty_json_root(document), &out, &error), TY_ENOMEM);
    ty_memory_fail_after(0);
    ty_json_free(document);
}
