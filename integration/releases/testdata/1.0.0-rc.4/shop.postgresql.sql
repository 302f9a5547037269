--
-- PostgreSQL database dump
--


-- Dumped from database version 15.18 (Debian 15.18-0+deb12u1)
-- Dumped by pg_dump version 15.18 (Debian 15.18-0+deb12u1)

SET statement_timeout = 0;
SET lock_timeout = 0;
SET idle_in_transaction_session_timeout = 0;
SET client_encoding = 'UTF8';
SET standard_conforming_strings = on;
SELECT pg_catalog.set_config('search_path', '', false);
SET check_function_bodies = false;
SET xmloption = content;
SET client_min_messages = warning;
SET row_security = off;

SET default_tablespace = '';

SET default_table_access_method = heap;

--
-- Name: storefront_orders; Type: TABLE; Schema: public; Owner: -
--

CREATE TABLE public.storefront_orders (
    id text NOT NULL COLLATE pg_catalog."C",
    qty bigint NOT NULL,
    created_ms bigint NOT NULL,
    keyed_ms bigint DEFAULT (floor((EXTRACT(epoch FROM now()) * (1000)::numeric)))::bigint,
    item text NOT NULL,
    scope bytea NOT NULL,
    key_hash bytea,
    key_fingerprint bytea,
    fields text DEFAULT ''::text NOT NULL
);


--
-- Name: storefront_products; Type: TABLE; Schema: public; Owner: -
--

CREATE TABLE public.storefront_products (
    id bytea NOT NULL,
    body text NOT NULL
);


--
-- Name: storefront_schema; Type: TABLE; Schema: public; Owner: -
--

CREATE TABLE public.storefront_schema (
    version bigint NOT NULL,
    oldest bigint NOT NULL,
    keep_ms bigint,
    forgotten_ms bigint
);


--
-- Name: storefront_users; Type: TABLE; Schema: public; Owner: -
--

CREATE TABLE public.storefront_users (
    id bytea NOT NULL,
    body text NOT NULL
);


--
-- Name: storefront_widgets; Type: TABLE; Schema: public; Owner: -
--

CREATE TABLE public.storefront_widgets (
    id bytea NOT NULL,
    body text NOT NULL
);


--
-- Data for Name: storefront_orders; Type: TABLE DATA; Schema: public; Owner: -
--

INSERT INTO public.storefront_orders VALUES ('ord_0pggfss63jo03bmnir5c781o7i', 2, 1795536638582, 1795963304483, 'teapot', '\x', '\xb222ae4f77787a26f9ad5409b9e5fb7bde760441c221bb8654e7c60027984fdd', '\x3903ffcff8da5f1d5e2f991405736371419170ce556f44078e66b0de15c3ef1e', '');
INSERT INTO public.storefront_orders VALUES ('ord_0pggfss6ga00m48t8vu6ajov7f', 1, 1795536638608, 1795963304485, 'kettle', '\x', '\xb1a9cc39a6195656fe9c987c43921c54c6157712037c1ac756dc85a589728789', '\x4a53b7138c44e0e3b70473fd9d4be34e7d5d4181111a598823ab4a1f47e5ad41', '');
INSERT INTO public.storefront_orders VALUES ('ord_0pggfss6ml40bt1q37gurfjakk', 9007199254740991, 1795536638621, 1795963304485, 'ééééééééééééééééééééééééééééééééééééééééééééééééééééééééééééééééééééééééééééééééééééééééééééééééééééééééééééééééééééééééééééééééééééééééééééééééééééééééééééééééééééééééééééééééééééééééééééééééééééééééééééééééééééééééééééééééééééééééééééééééééééééééééééééé', '\x', '\xa374e357c3e2d7599b3067718525a9363f681ddf4d358ed6c2489a52643ebba6', '\x9b2d89454cfc0a993e5dd5a2e1495c4b7847a7184cf46404ccf8305069b9328a', '');
INSERT INTO public.storefront_orders VALUES ('ord_0pggfss6o4004t73jqr7jvssmr', 3, 1795536638624, 1795963304486, 'another account''s teapot 😀', '\x616461', '\x60c001cf36f2e64212538767f1b694ecb1e77766563a641e4cb8a9d31c9c058e', '\x9fc28d16687c3932d3cea4504dfab13ec3eb672f267ff4eb25965f7e043cfa45', '');
INSERT INTO public.storefront_orders VALUES ('ord_0pggfss79mg0cbcoubvh9au9eg', 2, 1795536638660, 1795963304486, 'teapot', '\xc3a97665', '\xbce2383cf9183e15cc25ce053afdc4580b981685e9a06425ad869c725cd9169f', '\x3903ffcff8da5f1d5e2f991405736371419170ce556f44078e66b0de15c3ef1e', '');
INSERT INTO public.storefront_orders VALUES ('ord_0pggfssa0k3c1n2v8d0q4h6t9b', 2, 1795536639700, 1795963304486, 'teapot', '\x616461', '\xeeebb2b9453789e41099c1f70c0b0998099769c6913fa4928414da986e945378', '\x2afe64e687ad63015bbcf604be05e32024d38b016534a5cb52597b8ab5bf02dd', '{"a":1}');
INSERT INTO public.storefront_orders VALUES ('ord_0pggfssa1k3c1n2v8d0q4h6t9b', 2, 1795536639710, 1795963304487, 'teapot', '\x616461', '\xad5eb163b1400d1865bedc0a780bf66799ee942aeb70200220d08f05a6153c4b', '\x8f00922c1707546ec0d97315a9ffa8ace01e3fd06a0600249415f212f2800862', '{"b":[1.0,2e1,-0,1e30],"a":"é 😀","":{"x":null,"y":[],"z":{}}}');


--
-- Data for Name: storefront_products; Type: TABLE DATA; Schema: public; Owner: -
--

INSERT INTO public.storefront_products VALUES ('\x20', '{"id":" ","n":[0,-0,1.0,1e2,1E-7,12345678901234567890,0.1]}');
INSERT INTO public.storefront_products VALUES ('\x22', '{"id":"\"","text":"<b>&amp;</b> \u2028 \u0000 \" \\ / é 😀 😀"}');
INSERT INTO public.storefront_products VALUES ('\x253246', '{"id":"%2F"}');
INSERT INTO public.storefront_products VALUES ('\x30', '{"id":"0","name":"Ada","since":2024}');
INSERT INTO public.storefront_products VALUES ('\x61206226633d642365', '{"id":"a b&c=d#e","z":1,"a":2,"ID":"another member"}');
INSERT INTO public.storefront_products VALUES ('\x612f62', '{"id":"a/b","spaced":[1,2],"a":{},"":""}');
INSERT INTO public.storefront_products VALUES ('\x616461', '{"id":"ada"}');
INSERT INTO public.storefront_products VALUES ('\x65cc81', '{"id":"é","price":{"amount":"24.50","currency":"EUR"},"tags":["a",null,true]}');
INSERT INTO public.storefront_products VALUES ('\x787878787878787878787878787878787878787878787878787878787878787878787878787878787878787878787878787878787878787878787878787878787878787878787878787878787878787878787878787878787878787878787878787878787878787878787878787878787878787878787878787878787878787878787878787878787878787878787878787878787878787878787878787878787878787878787878787878787878787878787878787878787878787878787878787878787878787878787878787878787878787878787878787878787878787878787878787878787878787878787878787878787878787878787878787878', '{"id":"xxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxx","z":1,"a":2,"ID":"another member"}');
INSERT INTO public.storefront_products VALUES ('\x7e', '{"id":"~","price":{"amount":"24.50","currency":"EUR"},"tags":["a",null,true]}');
INSERT INTO public.storefront_products VALUES ('\xc2a0', '{"id":" ","spaced":[1,2],"a":{},"":""}');
INSERT INTO public.storefront_products VALUES ('\xc3a9', '{"id":"é","name":"Ada","since":2024}');
INSERT INTO public.storefront_products VALUES ('\xc3a9c3a9c3a9c3a9c3a9c3a9c3a9c3a9c3a9c3a9c3a9c3a9c3a9c3a9c3a9c3a9c3a9c3a9c3a9c3a9c3a9c3a9c3a9c3a9c3a9c3a9c3a9c3a9c3a9c3a9c3a9c3a9c3a9c3a9c3a9c3a9c3a9c3a9c3a9c3a9c3a9c3a9c3a9c3a9c3a9c3a9c3a9c3a9c3a9c3a9c3a9c3a9c3a9c3a9c3a9c3a9c3a9c3a9c3a9c3a9c3a9c3a9c3a9c3a9c3a9c3a9c3a9c3a9c3a9c3a9c3a9c3a9c3a9c3a9c3a9c3a9c3a9c3a9c3a9c3a9c3a9c3a9c3a9c3a9c3a9c3a9c3a9c3a9c3a9c3a9c3a9c3a9c3a9c3a9c3a9c3a9c3a9c3a9c3a9c3a9c3a9c3a9c3a9c3a9c3a9c3a9c3a9c3a9c3a9c3a9c3a9c3a9c3a9c3a9c3a9c3a9c3a9c3a9c3a9c3a9c3a9c3a9c3a9c3a9c3a9c3a9c3a9', '{"id":"ééééééééééééééééééééééééééééééééééééééééééééééééééééééééééééééééééééééééééééééééééééééééééééééééééééééééééééééééééééééééééééééé"}');
INSERT INTO public.storefront_products VALUES ('\xe697a5e69cace8aa9e', '{"id":"日本語","n":[0,-0,1.0,1e2,1E-7,12345678901234567890,0.1]}');
INSERT INTO public.storefront_products VALUES ('\xf09f9880', '{"id":"😀","text":"<b>&amp;</b> \u2028 \u0000 \" \\ / é 😀 😀"}');


--
-- Data for Name: storefront_schema; Type: TABLE DATA; Schema: public; Owner: -
--

INSERT INTO public.storefront_schema VALUES (1, 1, NULL, NULL);


--
-- Data for Name: storefront_users; Type: TABLE DATA; Schema: public; Owner: -
--

INSERT INTO public.storefront_users VALUES ('\x20', '{"id":" ","n":[0,-0,1.0,1e2,1E-7,12345678901234567890,0.1]}');
INSERT INTO public.storefront_users VALUES ('\x22', '{"id":"\"","text":"<b>&amp;</b> \u2028 \u0000 \" \\ / é 😀 😀"}');
INSERT INTO public.storefront_users VALUES ('\x253246', '{"id":"%2F"}');
INSERT INTO public.storefront_users VALUES ('\x30', '{"id":"0","name":"Ada","since":2024}');
INSERT INTO public.storefront_users VALUES ('\x61206226633d642365', '{"id":"a b&c=d#e","z":1,"a":2,"ID":"another member"}');
INSERT INTO public.storefront_users VALUES ('\x612f62', '{"id":"a/b","spaced":[1,2],"a":{},"":""}');
INSERT INTO public.storefront_users VALUES ('\x616461', '{"id":"ada"}');
INSERT INTO public.storefront_users VALUES ('\x65cc81', '{"id":"é","price":{"amount":"24.50","currency":"EUR"},"tags":["a",null,true]}');
INSERT INTO public.storefront_users VALUES ('\x787878787878787878787878787878787878787878787878787878787878787878787878787878787878787878787878787878787878787878787878787878787878787878787878787878787878787878787878787878787878787878787878787878787878787878787878787878787878787878787878787878787878787878787878787878787878787878787878787878787878787878787878787878787878787878787878787878787878787878787878787878787878787878787878787878787878787878787878787878787878787878787878787878787878787878787878787878787878787878787878787878787878787878787878787878', '{"id":"xxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxx","z":1,"a":2,"ID":"another member"}');
INSERT INTO public.storefront_users VALUES ('\x7e', '{"id":"~","price":{"amount":"24.50","currency":"EUR"},"tags":["a",null,true]}');
INSERT INTO public.storefront_users VALUES ('\xc2a0', '{"id":" ","spaced":[1,2],"a":{},"":""}');
INSERT INTO public.storefront_users VALUES ('\xc3a9', '{"id":"é","name":"Ada","since":2024}');
INSERT INTO public.storefront_users VALUES ('\xc3a9c3a9c3a9c3a9c3a9c3a9c3a9c3a9c3a9c3a9c3a9c3a9c3a9c3a9c3a9c3a9c3a9c3a9c3a9c3a9c3a9c3a9c3a9c3a9c3a9c3a9c3a9c3a9c3a9c3a9c3a9c3a9c3a9c3a9c3a9c3a9c3a9c3a9c3a9c3a9c3a9c3a9c3a9c3a9c3a9c3a9c3a9c3a9c3a9c3a9c3a9c3a9c3a9c3a9c3a9c3a9c3a9c3a9c3a9c3a9c3a9c3a9c3a9c3a9c3a9c3a9c3a9c3a9c3a9c3a9c3a9c3a9c3a9c3a9c3a9c3a9c3a9c3a9c3a9c3a9c3a9c3a9c3a9c3a9c3a9c3a9c3a9c3a9c3a9c3a9c3a9c3a9c3a9c3a9c3a9c3a9c3a9c3a9c3a9c3a9c3a9c3a9c3a9c3a9c3a9c3a9c3a9c3a9c3a9c3a9c3a9c3a9c3a9c3a9c3a9c3a9c3a9c3a9c3a9c3a9c3a9c3a9c3a9c3a9c3a9c3a9c3a9', '{"id":"ééééééééééééééééééééééééééééééééééééééééééééééééééééééééééééééééééééééééééééééééééééééééééééééééééééééééééééééééééééééééééééééé"}');
INSERT INTO public.storefront_users VALUES ('\xe697a5e69cace8aa9e', '{"id":"日本語","n":[0,-0,1.0,1e2,1E-7,12345678901234567890,0.1]}');
INSERT INTO public.storefront_users VALUES ('\xf09f9880', '{"id":"😀","text":"<b>&amp;</b> \u2028 \u0000 \" \\ / é 😀 😀"}');


--
-- Data for Name: storefront_widgets; Type: TABLE DATA; Schema: public; Owner: -
--

INSERT INTO public.storefront_widgets VALUES ('\x20', '{"id":" ","n":[0,-0,1.0,1e2,1E-7,12345678901234567890,0.1]}');
INSERT INTO public.storefront_widgets VALUES ('\x22', '{"id":"\"","text":"<b>&amp;</b> \u2028 \u0000 \" \\ / é 😀 😀"}');
INSERT INTO public.storefront_widgets VALUES ('\x253246', '{"id":"%2F"}');
INSERT INTO public.storefront_widgets VALUES ('\x30', '{"id":"0","name":"Ada","since":2024}');
INSERT INTO public.storefront_widgets VALUES ('\x61206226633d642365', '{"id":"a b&c=d#e","z":1,"a":2,"ID":"another member"}');
INSERT INTO public.storefront_widgets VALUES ('\x612f62', '{"id":"a/b","spaced":[1,2],"a":{},"":""}');
INSERT INTO public.storefront_widgets VALUES ('\x616461', '{"id":"ada"}');
INSERT INTO public.storefront_widgets VALUES ('\x65cc81', '{"id":"é","price":{"amount":"24.50","currency":"EUR"},"tags":["a",null,true]}');
INSERT INTO public.storefront_widgets VALUES ('\x787878787878787878787878787878787878787878787878787878787878787878787878787878787878787878787878787878787878787878787878787878787878787878787878787878787878787878787878787878787878787878787878787878787878787878787878787878787878787878787878787878787878787878787878787878787878787878787878787878787878787878787878787878787878787878787878787878787878787878787878787878787878787878787878787878787878787878787878787878787878787878787878787878787878787878787878787878787878787878787878787878787878787878787878787878', '{"id":"xxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxx","z":1,"a":2,"ID":"another member"}');
INSERT INTO public.storefront_widgets VALUES ('\x7e', '{"id":"~","price":{"amount":"24.50","currency":"EUR"},"tags":["a",null,true]}');
INSERT INTO public.storefront_widgets VALUES ('\xc2a0', '{"id":" ","spaced":[1,2],"a":{},"":""}');
INSERT INTO public.storefront_widgets VALUES ('\xc3a9', '{"id":"é","name":"Ada","since":2024}');
INSERT INTO public.storefront_widgets VALUES ('\xc3a9c3a9c3a9c3a9c3a9c3a9c3a9c3a9c3a9c3a9c3a9c3a9c3a9c3a9c3a9c3a9c3a9c3a9c3a9c3a9c3a9c3a9c3a9c3a9c3a9c3a9c3a9c3a9c3a9c3a9c3a9c3a9c3a9c3a9c3a9c3a9c3a9c3a9c3a9c3a9c3a9c3a9c3a9c3a9c3a9c3a9c3a9c3a9c3a9c3a9c3a9c3a9c3a9c3a9c3a9c3a9c3a9c3a9c3a9c3a9c3a9c3a9c3a9c3a9c3a9c3a9c3a9c3a9c3a9c3a9c3a9c3a9c3a9c3a9c3a9c3a9c3a9c3a9c3a9c3a9c3a9c3a9c3a9c3a9c3a9c3a9c3a9c3a9c3a9c3a9c3a9c3a9c3a9c3a9c3a9c3a9c3a9c3a9c3a9c3a9c3a9c3a9c3a9c3a9c3a9c3a9c3a9c3a9c3a9c3a9c3a9c3a9c3a9c3a9c3a9c3a9c3a9c3a9c3a9c3a9c3a9c3a9c3a9c3a9c3a9c3a9c3a9', '{"id":"ééééééééééééééééééééééééééééééééééééééééééééééééééééééééééééééééééééééééééééééééééééééééééééééééééééééééééééééééééééééééééééééé"}');
INSERT INTO public.storefront_widgets VALUES ('\xe697a5e69cace8aa9e', '{"id":"日本語","n":[0,-0,1.0,1e2,1E-7,12345678901234567890,0.1]}');
INSERT INTO public.storefront_widgets VALUES ('\xf09f9880', '{"id":"😀","text":"<b>&amp;</b> \u2028 \u0000 \" \\ / é 😀 😀"}');


--
-- Name: storefront_orders storefront_orders_pkey; Type: CONSTRAINT; Schema: public; Owner: -
--

ALTER TABLE ONLY public.storefront_orders
    ADD CONSTRAINT storefront_orders_pkey PRIMARY KEY (id);


--
-- Name: storefront_products storefront_products_pkey; Type: CONSTRAINT; Schema: public; Owner: -
--

ALTER TABLE ONLY public.storefront_products
    ADD CONSTRAINT storefront_products_pkey PRIMARY KEY (id);


--
-- Name: storefront_schema storefront_schema_pkey; Type: CONSTRAINT; Schema: public; Owner: -
--

ALTER TABLE ONLY public.storefront_schema
    ADD CONSTRAINT storefront_schema_pkey PRIMARY KEY (version);


--
-- Name: storefront_users storefront_users_pkey; Type: CONSTRAINT; Schema: public; Owner: -
--

ALTER TABLE ONLY public.storefront_users
    ADD CONSTRAINT storefront_users_pkey PRIMARY KEY (id);


--
-- Name: storefront_widgets storefront_widgets_pkey; Type: CONSTRAINT; Schema: public; Owner: -
--

ALTER TABLE ONLY public.storefront_widgets
    ADD CONSTRAINT storefront_widgets_pkey PRIMARY KEY (id);


--
-- Name: storefront_orders_key_hash; Type: INDEX; Schema: public; Owner: -
--

CREATE UNIQUE INDEX storefront_orders_key_hash ON public.storefront_orders USING btree (key_hash) WHERE (key_hash IS NOT NULL);


--
-- Name: storefront_orders_scope; Type: INDEX; Schema: public; Owner: -
--

CREATE INDEX storefront_orders_scope ON public.storefront_orders USING btree (scope, id);


--
-- PostgreSQL database dump complete
--


