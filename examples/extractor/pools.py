"""Names and words that the generated texts are filled with. Written for this purpose; none is of the bundled sample."""


def _split(text: str) -> tuple[str, ...]:
    return tuple(each.strip() for each in text.replace("\n", ",").split(",") if each.strip())


GIVEN = _split(
    """Adaeze, Agnes, Aisha, Alasdair, Alejandra, Amadou, Amelie, Anders, Anneliese, Antonio, Arjun, Astrid, Beatriz
    Bilal, Birgit, Bogdan, Brigid, Callum, Camille, Carmen, Cassandra, Chidi, Chloe, Clemens, Colette, Cyrus
    Dagny, Daniela, Darius, Deepa, Delphine, Dieter, Dmitri, Dorothy, Ebba, Edmund, Eirik, Ekaterina, Elif, Emeka
    Emre, Enzo, Esperanza, Esther, Fatima, Felix, Fiona, Florian, Francesca, Freya, Gareth, Genevieve, Giorgos
    Greta, Guillermo, Gwen, Habib, Hana, Harriet, Hassan, Heinrich, Helena, Henrik, Hiroshi, Hugo, Ibrahim, Ilse
    Ines, Ingrid, Isabel, Ivan, Jamal, Jana, Javier, Joaquin, Johanna, Jonas, Josephine, Judith, Julius, Kaito
    Katarzyna, Kenji, Khalid, Kofi, Lars, Laszlo, Leopold, Liam, Lorenzo, Lucia, Ludwig, Magdalena, Malik
    Manuela, Marcel, Margarethe, Mariam, Matthias, Mei, Miriam, Mohammed, Nadine, Naomi, Natalia, Nikolai, Noor
    Olga, Oluwaseun, Oscar, Patrick, Paulo, Pedro, Petra, Pierre, Quentin, Rafael, Rahel, Rebecca, Renate
    Ricardo, Rohan, Rosalind, Sabine, Salma, Samir, Sandeep, Sergei, Sibylle, Sigrid, Simone, Sinead, Stanislav
    Stefan, Sunita, Susanna, Sven, Takumi, Tamara, Tatiana, Thandiwe, Tobias, Ulrike, Umar, Valeria, Viktor
    Wanjiru, Wei, Wilhelm, Xavier, Yasmin, Yusuf, Zainab, Zofia, Ben, Joe, Amy, Dan, Kate, Mike, Sarah, David
    James, Anna, Peter, Laura, John, Mary, Robert, Linda, Michael, Susan, William, Karen, Richard, Nancy, Charles
    Lisa, Thomas, Betty, Daniel, Helen, Paul, Sandra, Mark, Donna, George, Carol, Steven, Ruth, Edward, Sharon
    Brian, Michelle, Ronald, Emily, Kevin, Amanda, Jason, Melissa, Gary, Deborah"""
)
AMBIGUOUS_GIVEN = _split(
    """May, June, April, August, Will, Grace, Mark, Rose, Hunter, Paris, Jordan, Austin, Hope, Faith, Joy, Dawn
    Summer, Chase, Grant, Rich, Frank, Bill, Art, Drew, Pat, Miles, Reed, Brook, Ivy, Pearl, Ruby, Amber, Sky
    Dale, Glen, Victoria, Sydney, Florence, Georgia, Savannah"""
)
FAMILY = _split(
    """Abernathy, Adeyemi, Ahlström, Albrecht, Andersson, Anand, Arslan, Asante, Bakker, Banerjee, Barrientos
    Beaumont, Bergström, Bianchi, Blackwood, Boateng, Bouchard, Brennan, Caldwell, Calloway, Cardoso, Castellanos
    Chandra, Chatterjee, Cho, Ciobanu, Cohen, Conti, Corrigan, Cortez, Cunningham, Dahl, Dąbrowski, Delacroix
    Demir, Desai, Diallo, Donnelly, Drummond, Eklund, Engström, Eriksen, Espinoza, Fairbanks, Farouk, Ferrari
    Fitzgerald, Fontaine, Forsyth, Friedrich, Fujimoto, Gallagher, García, Gebhardt, Giordano, Goldstein
    Gonçalves, Gruber, Gupta, Haas, Hagen, Hakimi, Hamasaki, Hartmann, Hassan, Hawthorne, Hernández, Hoffmann
    Holloway, Horváth, Huber, Ibarra, Ito, Ivanova, Jankowski, Jensen, Johansson, Kaminski, Kapoor, Karlsson
    Kask, Keller, Khan, Kim, Kovács, Kowalczyk, Krüger, Kuznetsov, Lacroix, Lambert, Larsson, Lebedev, Lefebvre
    Leitner, Li, Lindgren, Lombardi, López, Lundqvist, MacAllister, Magnusson, Mahmoud, Marchetti, Martínez
    Mbeki, McCarthy, McKenna, Mehta, Mendes, Meyer, Mitchell, Moreau, Mukherjee, Müller, Murakami, Murphy
    Nakamura, Ndiaye, Nguyen, Nielsen, Novak, O'Brien, O'Connor, Okafor, Okonkwo, Oliveira, Olsson, Ortega, Osei
    Özdemir, Papadopoulos, Park, Patel, Pavlov, Pellegrini, Pereira, Peters, Popescu, Quinn, Rahman, Ramírez
    Rasmussen, Reinhardt, Richter, Rinaldi, Rivera, Romero, Rossi, Rousseau, Ruiz, Saito, Salazar, Sandoval
    Santos, Schäfer, Schneider, Schulz, Schwarz, Serrano, Shapiro, Sharma, Silva, Sinclair, Singh, Sokolov
    Sørensen, Stewart, Suzuki, Svensson, Tanaka, Thorsen, Torres, Trudeau, Tsang, Ueda, Ulrich, Underwood
    Vasquez, Venter, Vidal, Vogel, Wagner, Walsh, Wang, Watanabe, Weber, Whitfield, Winkler, Wu, Yamamoto, Yıldız
    Zhang, Zhou, Zimmermann, van der Berg, van Dijk, de Vries, von Arnim, de la Cruz, da Costa, al-Rashid
    bin Salem, ter Horst, Smith, Johnson, Brown, Taylor, Wilson, Clark, Hall, Wright, Young, Walker, Hill, Green
    Baker, Cooper, King, Carter, Fisher, Stone, Woods, Marsh"""
)
AMBIGUOUS_FAMILY = _split(
    """Washington, London, Lincoln, Houston, Hamilton, Berlin, Ford, Dell, Chase, Banks, Church, Field, Rivers, Lake
    Forest, Price, Law, Wells, Hershey, Kellogg, Sachs, Morgan, Barclay, Disney, Porter, Mason, Sterling, York
    Chester, Lancaster, Madison, Jackson, Monroe"""
)
TITLES = _split(
    """Mr, Mrs, Ms, Dr, Prof., Professor, Mr., Mrs., Ms., Dr., Justice, Judge, Senator, Sir, Captain, Sgt., Rev.
    Minister"""
)
STEMS = _split(
    """Aldermoor, Altavia, Ambrel, Amstel Ridge, Anvil & Ash, Apex Meridian, Arbour Lane, Argentum, Arkwright
    Aurelio, Avonlea, Axiom, Bannerman, Basalt, Beacon Hill, Bellwether, Birchgate, Blackthorn, Blue Heron
    Bramble, Brightwater, Brightspan, Broadleaf, Brookline, Calder, Calyx, Canopus, Cardinal Point
    Carrefour Nord, Castellan, Cedar Grove, Celeritas, Cinderpeak, Clearbrook, Cobalt, Copperfield, Corvus
    Crestline, Crownbridge, Cygnet, Dalton, Delphic, Dovetail, Dunmore, Eastgate, Ebonite, Edgecombe, Elmstead
    Emberly, Everstone, Fairhaven, Falconer, Fenwick, Firthside, Fjordline, Foxglove, Galatea, Garnet, Glenross
    Goldcrest, Granite Bay, Greycoat, Halcyon Bridge, Harland, Hawksmoor, Hazelton, Helix, Highmark, Hollis
    Horizon Nine, Hyperia, Inkwell, Ironbark, Isotope, Jadestone, Juniper & Vale, Kaleido, Keystone, Kingfisher
    Kite, Larkspur, Latitude 51, Lighthouse, Lindenhof, Lumen, Lyra, Magnolia, Maplewood, Marrowbone, Meridian
    Milestone, Mirabel, Monarch, Moonraker, Nautilus, Nimbus, Nordwind, Northgate, Oakfield, Obsidian, Octavian
    Onyx, Opaline, Orion, Osprey, Palisade, Parallax, Pemberton, Peregrine, Pinecrest, Pinnacle, Polaris, Prism
    Quarry Lane, Quill, Radiant, Ravenscourt, Redwood, Riverstone, Rosewood, Sable Point, Saffron, Sandpiper
    Sapphire, Seabright, Sequoia, Silverline, Solstice, Southport, Springfield, Starling, Stonebridge, Summit
    Talon, Tamarind, Tern, Thistle, Thornbury, Tidewater, Titan, Topaz, Tribeca, Trillium, Umbra, Unison, Valiant
    Vantage, Vector, Verdant, Vermillion, Vesper, Vireo, Waverley, Westbrook, Whitestone, Wildfire, Willowbank
    Windmere, Wolfram, Xylo, Yarrow, Zenith, Zephyr"""
)
FIRM_ENDS = _split(
    """Inc, Inc., Corp, Corp., Corporation, Ltd, Ltd., Limited, LLC, LLP, PLC, GmbH, AG, SA, S.A., BV, N.V., AB, Oy
    Pty Ltd, SpA, S.r.l., SARL, KG, & Co, & Sons, Company, Group, Holdings, Partners, Capital, Logistics, Foods
    Robotics, Analytics, Software, Systems, Labs, Energy, Motors, Pharma, Textiles, Shipping, Bank, Insurance
    Media, Studios, Press, Consulting, Architects, Airlines, Electric, Farms, Brewery, Hotels, Marine, Networks
    Telecom, Ventures, Trust, Foundation, Institute, Solutions, Industries, Instruments, Technologies, Publishing"""
)
ORGANISATIONS = _split(
    """Google, Microsoft, IBM, Siemens, Toyota, Nokia, BBC, CNN, Reuters, NASA, UNICEF, NATO, WHO, European Union
    EU, UN, United Nations, World Bank, European Parliament, Supreme Court, High Court, Court of Appeal
    Parliament, Congress, Senate, House of Commons, Ministry of Health, Ministry of Defence
    Department of Justice, Department of Agriculture, Home Office, State Department, White House, Pentagon, FBI
    CIA, Federal Reserve, European Central Bank, Red Cross, Greenpeace, Amnesty International, Oxfam, FIFA, UEFA
    Harvard University, Stanford University, University of Oxford, University of Toronto, Cambridge University
    MIT, ETH Zurich, Sorbonne, Max Planck Institute, University of Cape Town, Imperial College London
    Johns Hopkins University, Associated Press, New York Times, The Guardian, Le Monde, Der Spiegel, Al Jazeera
    Washington Post, Wall Street Journal, Fox News, Labour Party, Democratic Party, Green Party, Republican Party
    Conservative Party, Liberal Party, Boeing, Airbus, Lufthansa, Air France, Deutsche Bank, Goldman Sachs
    JPMorgan Chase, Morgan Stanley, Barclays, HSBC, Credit Suisse, Walmart, Amazon, Apple, Intel, Samsung, Sony
    Nintendo, Netflix, Disney, Ford, General Motors, Volkswagen, Tesla, Shell, Exxon, BP, Nestlé, Unilever
    Coca-Cola, Pepsi, McDonald's, Starbucks, Ikea, Twitter, Facebook, Wikimedia Foundation, Mozilla, Red Hat
    Oracle, Cisco, Hewlett-Packard, Dell, PwC, KPMG, Deloitte, Ernst & Young, McKinsey, Royal Society
    Smithsonian Institution, National Science Foundation, National Institutes of Health
    Centers for Disease Control, CDC, FDA, Environmental Protection Agency, EPA, Metropolitan Police, Royal Navy
    Scotland Yard, Liverpool FC, Real Madrid, New York Yankees, Chicago Bulls, Museum of Modern Art
    British Museum, Tate Modern, International Olympic Committee, Interpol, World Trade Organization, OECD, OPEC
    ASEAN, African Union, Boy Scouts of America, National Park Service, U.S. Navy, Royal Air Force
    Constitutional Court, Board of Education, City Council, Chamber of Commerce, Human Rights Watch
    Doctors Without Borders, 3M, H&M, AT&T, BMW, SAP, UPS, DHL, UBS, AXA, ING, L'Oréal, Credit Agricole"""
)
PLACES = _split(
    """Vienna, Berlin, Paris, London, Madrid, Rome, Lisbon, Dublin, Oslo, Stockholm, Helsinki, Copenhagen, Warsaw
    Prague, Budapest, Athens, Istanbul, Cairo, Nairobi, Lagos, Accra, Cape Town, Johannesburg, Dakar, Tunis
    Casablanca, Mumbai, Delhi, Bangalore, Karachi, Dhaka, Bangkok, Hanoi, Jakarta, Manila, Singapore, Hong Kong
    Shanghai, Beijing, Seoul, Tokyo, Osaka, Kyoto, Sydney, Melbourne, Auckland, Wellington, Toronto, Vancouver
    Montreal, Ottawa, New York, Chicago, Boston, Los Angeles, San Francisco, Denver, Dallas, Houston, Miami
    Atlanta, Philadelphia, Detroit, Minneapolis, New Orleans, Mexico City, Lima, Bogotá, Buenos Aires, Santiago
    São Paulo, Rio de Janeiro, Havana, Germany, France, Spain, Italy, Portugal, Ireland, Norway, Sweden, Finland
    Denmark, Poland, Austria, Switzerland, Hungary, Greece, Turkey, Egypt, Kenya, Nigeria, Ghana, South Africa
    Morocco, India, Pakistan, Bangladesh, Thailand, Vietnam, Indonesia, Philippines, China, Japan, South Korea
    Australia, New Zealand, Canada, Mexico, Brazil, Argentina, Chile, Peru, Colombia, Cuba, Iran, Iraq, Israel
    Syria, Lebanon, Saudi Arabia, Russia, Ukraine, Afghanistan, North Korea, US, USA, UK, UAE, U.S., U.K.
    United States, United Kingdom, England, Scotland, Wales, Bavaria, California, Texas, Florida, Ohio, Michigan
    Arizona, Colorado, Virginia, Pennsylvania, Massachusetts, Ontario, Quebec, British Columbia, Queensland
    New South Wales, Catalonia, Tuscany, Brittany, Saxony, Flanders, Europe, Africa, Asia, South America
    Middle East, Scandinavia, Lake Geneva, Lake Victoria, Mount Kenya, Mount Fuji, River Thames, Rhine, Danube
    Nile, Amazon, Pacific, Atlantic, Mediterranean, Baltic Sea, Gulf of Mexico, Black Forest, Alps, Andes
    Himalayas, Sahara, Central Park, Times Square, Downing Street, Broadway, Heathrow, Manhattan, Brooklyn
    Hollywood, Silicon Valley, Harlem, Oxford, Cambridge, Leipzig, Munich, Hamburg, Cologne, Frankfurt, Zurich
    Geneva, Basel, Graz, Salzburg, Lyon, Marseille, Bordeaux, Toulouse, Nantes, Seville, Valencia, Bilbao
    Granada, Turin, Naples, Bologna, Palermo, Porto, Ghent, Rotterdam, Utrecht, Malmö, Bergen, Tampere, Kraków
    Gdańsk, Brno, Bristol, Leeds, Glasgow, Edinburgh, Cardiff, Cork, Galway, Mars, Moon"""
)
PLACE_STEMS = _split(
    """Alder, Ash, Birch, Bitter, Black, Cold, Copper, Crane, Dun, East, Elk, Fairfield, Fox, Gull, Hart, Hazel
    High, Holly, Iron, Kings, Lower, Maple, Marl, Mill, North, Old, Otter, Pine, Quarry, Raven, Red, Salt, Sand
    Silver, South, Spring, Stony, Swan, Thorn, Upper, West, White, Wolf"""
)
PLACE_ENDS = _split(
    """Avenue, Street, Road, Lane, Square, Bay, Bridge, County, Creek, Falls, Harbour, Heights, Hill, Island, Park
    Valley, River, Station, Wharf, Beach, Village, Forest, Airport, Point, Junction"""
)
TOWN_ENDS = _split("""ford, ton, field, bury, mouth, haven, wick, ham, dale, stead, borough, bridge""")
CODE_NAMES = _split(
    """Abacus, Albatross, Almanac, Andromeda, Antelope, Arrowhead, Atlas, Aurora, Avalanche, Badger, Ballast
    Basilisk, Blackbird, Bluebell, Bobcat, Borealis, Buttercup, Caravel, Cassini, Catalyst, Centaur, Chimera
    Chrysalis, Compass, Comet, Condor, Coral, Crossbow, Cyclone, Daybreak, Dolphin, Dragonfly, Driftwood, Eclipse
    Ember, Everest, Firefly, Flamingo, Flintlock, Fulcrum, Gazelle, Gemini, Geyser, Glacier, Griffin, Hailstorm
    Hedgehog, Hemlock, Hornet, Hourglass, Hummingbird, Icebreaker, Jackdaw, Janus, Jasmine, Jigsaw, Kiwi
    Labyrinth, Lapwing, Lichen, Limestone, Lodestar, Lotus, Lynx, Mandolin, Mangrove, Marigold, Marlin, Mercury
    Metronome, Minerva, Monsoon, Mosaic, Narwhal, Nebula, Nightjar, Nutmeg, Oasis, Ocelot, Odyssey, Orchid
    Origami, Otter, Overture, Panther, Papyrus, Pegasus, Pelican, Phoenix, Pilgrim, Plover, Porcupine, Prometheus
    Puffin, Quartz, Quicksilver, Rainbow, Raptor, Rosetta, Rubicon, Sandstorm, Scorpio, Sextant, Snowdrop
    Sparrow, Sphinx, Stardust, Sundial, Sunflower, Tarantula, Tempest, Terrapin, Thunderbolt, Tortoise, Trident
    Tundra, Tulip, Vanguard, Vortex, Walrus, Waterfall, Wayfinder, Whirlwind, Wombat, Yellowtail, Zeppelin"""
)
PROJECT_ENDS = _split(
    """Migration, Upgrade, Rollout, Initiative, Programme, Program, Pilot, Redevelopment, Expansion, Redesign, Refit
    Renewal"""
)
PROJECT_TOPICS = _split(
    """Warehouse, Payroll, Harbour, Cold Chain, Data Lake, Website, Billing, Station, Roof, Campus, Solar, Badge
    Archive, Fleet, Library, Intranet, Checkout, Network, Ledger, Clinic, Orchard, Kitchen, Bridge, Parking"""
)
ACCOUNT_TOPICS = _split(
    """Payroll, Travel, Petty Cash, Marketing, Maintenance, Seed, Operating, Equipment, Relief, Training, Grant
    Pension, Legal, Emergency, Winter, Rent, Tools, Catering, Tax, Endowment, Freight, Wholesale, Retail, Export
    Spring, Donor, Building, Events"""
)
ACCOUNT_ENDS = _split(
    """Reserve, Deposit, Float, Retainer, Fund, Escrow, Wholesale, Retail, Bulk, Savings, Clearing, Advance, Trial
    Trust, Ledger, Credit Line, Suspense, Settlement"""
)
DISTRACTORS = _split(
    """English, German, French, Spanish, Chinese, American, British, European, African, Christian, Muslim, Buddhist
    Olympics, World Cup, Internet, Excel, PowerPoint, Word, Linux, Windows, Android, Python, JavaScript, iPhone
    Kindle, PDF, CSV, API, CEO, CFO, HR, IT, FAQ, GDPR, VAT, OK, TV, GPS, Nobel Prize, Pulitzer, Christmas
    Easter, Ramadan, Thanksgiving, Second World War, Cold War, Renaissance, Brexit, COVID-19, HIV, DNA, Bible
    Quran, Hamlet, Star Wars, Harry Potter, Bitcoin, Bluetooth, Wi-Fi, Ebola, Latin, Sanskrit, Marxist, Victorian
    Jupiter, Ph.D., MBA, BSc, Best Practice Guide, Data Protection Act, Health and Safety Policy
    Terms of Service, Form 12-B, Section 4, Article 7, Annex C, Table 2, Figure 3, Invoice 4471, Ticket 802
    Room 214, Gate B, Boeing 737, Model T, Corolla, Xbox, PlayStation, Nikon D90, Canon, French Open"""
)
MONTHS = _split("""January, February, March, April, May, June, July, August, September, October, November, December""")
DAYS = _split("""Monday, Tuesday, Wednesday, Thursday, Friday, Saturday, Sunday""")
ROLES = _split(
    """director of operations, head of sales, chief financial officer, site manager, project lead
    professor of history, staff engineer, account manager, chair of the board, night supervisor, research fellow
    spokeswoman, general counsel, editor, nurse, teacher, driver"""
)
HAN_PEOPLE = _split(
    """王伟, 李娜, 张敏, 刘洋, 陈静, 杨帆, 赵磊, 黄丽, 周杰
    吴芳, 孙浩, 林雪, 田中太郎, 佐藤花子, 鈴木一郎, 高橋美咲, 김민준, 이서연, 박지훈"""
)
HAN_PLACES = _split(
    """北京, 上海, 广州, 深圳, 杭州, 成都, 东京, 大阪, 京都, 北海道, 香港, 台北, 서울, 부산, 德国, 法国"""
)
HAN_FIRMS = _split(
    """华远科技有限公司, 东海银行, 新光电子, 长河物流, 明星食品公司
    三和電機株式会社, 東都大学, 北辰汽车, 한빛전자, 青山製薬"""
)
HAN_PROJECTS = _split("""星火计划, 蓝鲸项目, 晨曦工程, 富士プロジェクト, 海桥工程""")
HAN_ACCOUNTS = _split("""差旅备用金, 维修储备账户, 春季押金账户""")
