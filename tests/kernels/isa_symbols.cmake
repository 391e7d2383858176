# Fails when an object file made for one instruction set level defines an inline function that other
# translation units may define too: the linker keeps one copy of it, perhaps the one that this
# machine cannot run. Usage: cmake -DNM=nm -DOBJECTS=a.o;b.o -P isa_symbols.cmake
set(checked 0)
foreach(object IN LISTS OBJECTS)
  if(NOT object MATCHES "(avx2|avx512)\\.cc\\.o$")
    continue()
  endif()
  set(level ${CMAKE_MATCH_1})
  execute_process(COMMAND ${NM} -C --defined-only ${object} OUTPUT_VARIABLE symbols
                                                            COMMAND_ERROR_IS_FATAL ANY)
  string(REGEX MATCHALL "[^\n]* [VWu] [^\n]*" shared "${symbols}")
  foreach(symbol IN LISTS shared)
    if(NOT symbol MATCHES "::${level}::")
      message(SEND_ERROR "${object} defines ${symbol}")
    endif()
  endforeach()
  math(EXPR checked "${checked} + 1")
endforeach()
if(checked LESS 2)
  message(SEND_ERROR "no object files to check in: ${OBJECTS}")
endif()
