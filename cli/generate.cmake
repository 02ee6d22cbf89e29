# Runs PROGRAM with WORDS and writes its output to OUTPUT; a failure leaves no file.
execute_process(COMMAND ${PROGRAM} ${WORDS} OUTPUT_VARIABLE text COMMAND_ERROR_IS_FATAL ANY)
file(WRITE ${OUTPUT} "${text}")
