# cmake -DSYMBOL=... -DINPUT=... -DOUTPUT=... -P embed.cmake: a file as a C string.
file(READ ${INPUT} bytes HEX)
string(REGEX REPLACE "([0-9a-f][0-9a-f])" "'\\\\x\\1'," bytes "${bytes}")
file(WRITE ${OUTPUT} "#include \"html.h\"\n\nconst char ${SYMBOL}[] = {${bytes}0};\n")
