/* Parses arithmetic in files by recursive descent: one function per level of precedence. */
#include "expression.h"

#include <ctype.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#define LARGEST_WHOLE 9007199254740992.0 /* 2^53 */

static double read_choice(ty_expression *e);

static double checked(ty_expression *e, double value)
{
    if (e->is_whole && !(fabs(value) <= LARGEST_WHOLE))
        e->is_wrong = true;
    return value;
}

static double divide(ty_expression *e, const char *operation, double left, double right)
{
    if (right == 0) {
        e->is_wrong = e->is_wrong || e->is_whole;
        return 0;
    }
    if (operation[0] == '%')
        return fmod(left, right);
    if (operation[1] == '/')
        return floor(left / right);
    return e->is_whole ? trunc(left / right) : left / right;
}

static double apply(ty_expression *e, const char *operation, double left, double right)
{
    switch (operation[0]) {
    case '|':
        return left != 0 || right != 0;
    case '&':
        return left != 0 && right != 0;
    case '=':
        return left == right;
    case '!':
        return left != right;
    case '<':
        return operation[1] == '=' ? left <= right : left < right;
    case '>':
        return operation[1] == '=' ? left >= right : left > right;
    case '+':
        return left + right;
    case '-':
        return left - right;
    case '*':
        return left * right;
    default:
        return divide(e, operation, left, right);
    }
}

static void skip_blank(ty_expression *e)
{
    while (*e->at == ' ' || *e->at == '\t')
        e->at++;
}

static double read_primary(ty_expression *e)
{
    double value = 0;
    const char *end;

    skip_blank(e);
    if (*e->at == '(' && e->deepest > 0) {
        e->at++;
        e->deepest--;
        value = read_choice(e);
        e->deepest++;
        skip_blank(e);
        e->is_wrong = e->is_wrong || *e->at != ')';
        e->at += *e->at == ')';
        return value;
    }
    if ((*e->at == '!' || *e->at == '-') && e->deepest > 0) {
        const char sign = *e->at++;
        e->deepest--;
        value = read_primary(e);
        e->deepest++;
        return sign == '-' ? -value : value == 0;
    }
    if (isdigit((unsigned char)*e->at)) { /* whatever the locale */
        double unit = 1;
        while (isdigit((unsigned char)*e->at))
            value = 10 * value + (*e->at++ - '0');
        if (!e->is_whole && *e->at == '.')
            for (e->at++; isdigit((unsigned char)*e->at); e->at++)
                value += (*e->at - '0') * (unit /= 10);
        return checked(e, value);
    }
    end = e->name(e->context, e->at, &value);
    e->is_wrong = e->is_wrong || end == NULL;
    e->at = end != NULL ? end : e->at;
    return value;
}

/* From lowest to highest precedence; the longer of two operators with the same prefix is first. */
static const char *const levels[][5] = {
    {"||"}, {"&&"}, {"==", "!="}, {"<=", ">=", "<", ">"}, {"+", "-"}, {"*", "//", "/", "%"},
};
enum { LEVEL_COUNT = sizeof levels / sizeof levels[0] };

static double read_level(ty_expression *e, int level)
{
    double left;

    if (level == LEVEL_COUNT)
        return read_primary(e);
    left = read_level(e, level + 1);
    for (;;) {
        const char *operation = NULL;
        skip_blank(e);
        for (int i = 0; i < 5 && levels[level][i] != NULL && operation == NULL; i++)
            if (strncmp(e->at, levels[level][i], strlen(levels[level][i])) == 0)
                operation = levels[level][i];
        if (operation == NULL || e->is_wrong)
            return left;
        e->at += strlen(operation);
        left = checked(e, apply(e, operation, left, read_level(e, level + 1)));
    }
}

static double read_choice(ty_expression *e)
{
    const double condition = read_level(e, 0);
    double yes, no;

    skip_blank(e);
    if (*e->at != '?' || e->is_wrong || e->deepest == 0)
        return condition;
    e->at++;
    e->deepest--;
    yes = read_choice(e);
    skip_blank(e);
    e->is_wrong = e->is_wrong || *e->at != ':';
    e->at += *e->at == ':';
    no = e->is_wrong ? 0 : read_choice(e);
    e->deepest++;
    return condition != 0 ? yes : no;
}

double ty_expression_read(ty_expression *expression)
{
    const double value = read_choice(expression);

    skip_blank(expression);
    return value;
}
